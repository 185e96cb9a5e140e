import { describe, expect, it } from 'vitest'
import type { Token } from '../src/lib/messages'
import { brightness, filterWeights, maxAbs, LOG_FLOOR, weightAt } from '../src/lib/scale'
import {
  crossRollout, difference, groupTokens, maxOf, meanOf, mergeGroups, normalizeRows, headMatrix, product, ranks, rollout, shifts, type Layer, type Matrix,
} from '../src/lib/weights'

const matrix = (rows: number[][]): Matrix => ({ rows: rows.length, columns: rows[0]!.length, data: Float32Array.from(rows.flat()) })
const rows = ({ rows: count, columns, data }: Matrix) =>
  Array.from({ length: count }, (_, row) => Array.from(data.slice(row * columns, (row + 1) * columns), (each) => +each.toFixed(4)))
const layer = (heads: number[][][]): Layer => ({
  heads: heads.length, queries: heads[0]!.length, keys: heads[0]![0]!.length, data: Uint8Array.from(heads.flat(2)),
})
const token = (text: string, word: number | null, special = false): Token => ({ piece: text, text, id: 1, word, special })

describe('heads', () => {
  // √1 is the byte 255, √0.36 is 153, √0.64 is 204.
  const two = layer([[[255, 0], [153, 204]], [[0, 255], [204, 153]]])

  it('are decoded from the bytes of their square roots', () => {
    expect(rows(headMatrix(two, 0))).toEqual([[1, 0], [0.36, 0.64]])
    expect(rows(headMatrix(two, 1))).toEqual([[0, 1], [0.64, 0.36]])
  })

  it('have a mean, of all or of some', () => {
    expect(rows(meanOf(two, []))).toEqual([[0.5, 0.5], [0.5, 0.5]])
    expect(rows(meanOf(two, [1]))).toEqual([[0, 1], [0.64, 0.36]])
  })

  it('change by the total variation distance of their rows', () => {
    const after = layer([[[0, 255], [153, 204]], [[0, 255], [204, 153]]])
    expect(shifts(two, after).map((each) => +each.toFixed(3))).toEqual([0.5, 0])
  })

  it('have a maximum', () => {
    expect(rows(maxOf(two, []))).toEqual([[1, 1], [0.64, 0.64]])
  })
})

describe('rollout', () => {
  const swap = layer([[[0, 255], [255, 0]]])
  const stay = layer([[[255, 0], [0, 255]]])

  it('of one layer is half the layer and half the identity', () => {
    expect(rows(rollout([swap]))).toEqual([[0.5, 0.5], [0.5, 0.5]])
  })

  it('of layers that attend only to the same token is the identity', () => {
    expect(rows(rollout([stay, stay, stay]))).toEqual([[1, 0], [0, 1]])
  })

  it('leaves every row with a sum of one', () => {
    const sums = rows(rollout([swap, layer([[[153, 204], [204, 153]]]), stay])).map((row) => row.reduce((a, b) => a + b))
    for (const sum of sums) expect(sum).toBeCloseTo(1, 3)
  })

  it('of cross-attention goes through the encoder to the source', () => {
    expect(rows(crossRollout(layer([[[255, 0]]]), [swap]))).toEqual([[0.5, 0.5]])
    expect(rows(crossRollout(layer([[[255, 0]]]), []))).toEqual([[1, 0]])
  })

  it('multiplies from the top down', () => {
    expect(rows(product(matrix([[1, 2]]), matrix([[1, 0], [0, 3]])))).toEqual([[1, 6]])
  })
})

describe('words', () => {
  const tokens = [token('Kat', 0), token('ze', 0), token('sah', 1), token('</s>', null, true)]

  it('are groups of subwords', () => {
    expect(groupTokens(tokens, true, true).map(({ text, members }) => [text, members])).toEqual([['Katze', [0, 1]], ['sah', [2]], ['</s>', [3]]])
    expect(groupTokens(tokens, false, true)).toHaveLength(4)
  })

  it('are not formed by tokens without a word', () => {
    expect(groupTokens([token('a', null), token('b', null)], true, true)).toHaveLength(2)
  })

  it('sum the weights of their subwords as keys, and average them as queries', () => {
    const whole = matrix([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.1, 0.4], [0, 0, 1, 0], [0, 0, 0, 1]])
    const words = groupTokens(tokens, true, true)
    expect(rows(mergeGroups(whole, words, words))).toEqual([[0.4, 0.2, 0.4], [0, 1, 0], [0, 0, 1]])
  })
})

describe('special tokens', () => {
  const tokens = [token('a', 0), token('b', 1), token('</s>', null, true)]

  it('can be left out, and the rows are normalised again', () => {
    const without = groupTokens(tokens, false, false)
    const whole = matrix([[0.2, 0.2, 0.6], [0.1, 0.4, 0.5], [0, 0, 1]])
    expect(rows(mergeGroups(whole, without, without))).toEqual([[0.5, 0.5], [0.2, 0.8]])
  })

  it('leave a row of zeros if they had all the weight', () => {
    expect(rows(normalizeRows(matrix([[0, 0]])))).toEqual([[0, 0]])
  })
})

describe('scales', () => {
  it.each(['linear', 'sqrt', 'log'] as const)('go from dark to bright (%s)', (scale) => {
    expect(brightness(0, scale)).toBe(0)
    expect(brightness(1, scale)).toBe(1)
    expect(brightness(0.3, scale)).toBeGreaterThan(brightness(0.2, scale))
    expect(weightAt(brightness(0.3, scale), scale)).toBeCloseTo(0.3)
  })

  it('show small weights more, from linear to square root to logarithmic', () => {
    expect(brightness(0.01, 'sqrt')).toBeGreaterThan(brightness(0.01, 'linear'))
    expect(brightness(0.01, 'log')).toBeGreaterThan(brightness(0.01, 'sqrt'))
    expect(brightness(LOG_FLOOR / 2, 'log')).toBe(0)
  })
})

describe('filters', () => {
  const some = matrix([[0.1, 0.6, 0.3], [-0.5, 0.2, 0.05]])

  it('drop values below a threshold, by absolute value', () => {
    expect(rows(filterWeights(some, { by: 'threshold', least: 0.2 }))).toEqual([[0, 0.6, 0.3], [-0.5, 0.2, 0]])
    expect(filterWeights(some, { by: 'threshold', least: 0 })).toBe(some)
  })

  it('keep the largest weights of each row', () => {
    expect(rows(filterWeights(some, { by: 'top', count: 1 }))).toEqual([[0, 0.6, 0], [-0.5, 0, 0]])
  })

  it('find the largest absolute value', () => {
    expect(maxAbs(some)).toBeCloseTo(0.6)
    expect(rows(difference(matrix([[0.5, 0.5]]), matrix([[0.2, 0.8]])))).toEqual([[0.3, -0.3]])
  })

  it('rank a row', () => {
    expect(ranks(Float32Array.from([0.2, 0.7, 0.1]))).toEqual([2, 1, 3])
  })
})
