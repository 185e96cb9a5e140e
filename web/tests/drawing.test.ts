import { describe, expect, it } from 'vitest'
import { cellSizes, visibleLabels, moveCell } from '../src/lib/grid'
import { bundles } from '../src/lib/lines'
import { groupStages, displayKind, calculation } from '../src/lib/maths'
import { bytePixels, css, divergingCss, pixels } from '../src/lib/palette'

describe('colours', () => {
  it('of weights go from cividis navy to yellow', () => {
    expect(css('cividis', 0)).toBe('rgb(0 34 78)')
    expect(css('cividis', 1)).toBe('rgb(254 232 56)')
  })

  it('of differences are white at zero, blue below and orange above', () => {
    expect(divergingCss(0)).toBe('rgb(255 255 255)')
    const [red, , blue] = /(\d+) (\d+) (\d+)/.exec(divergingCss(-1))!.slice(1).map(Number) as [number, number, number]
    expect(blue).toBeGreaterThan(red)
  })

  it('increase in brightness along cividis, so that the order is visible without hue', () => {
    const light = (t: number) => {
      const [red, green, blue] = /(\d+) (\d+) (\d+)/.exec(css('cividis', t))!.slice(1).map(Number) as [number, number, number]
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
    for (let t = 0; t < 1; t += 0.05) expect(light(t)).toBeLessThan(light(t + 0.05))
  })

  it('paint a byte as they paint its weight', () => {
    expect(bytePixels('cividis', 'linear', 0)[255]).toBe(pixels('cividis')[1023])
    expect(bytePixels('cividis', 'linear', 0.5)[100]).toBe(pixels('cividis')[0])
  })
})

describe('a heat map', () => {
  it('has square cells within limits of size', () => {
    expect(cellSizes({ width: 600, height: 600 }, 3, 3)).toEqual({ wide: 42, high: 42, width: 126, height: 126 })
    expect(cellSizes({ width: 600, height: 300 }, 20, 30)).toMatchObject({ wide: 15, high: 15 })
    expect(cellSizes({ width: 600, height: 600 }, 500, 500)).toMatchObject({ wide: 1.2, high: 1.2 })
    expect(cellSizes({ width: 600, height: 600 }, 900, 900)).toMatchObject({ wide: 1, high: 1 })
  })

  it('keeps a few rows readable over many columns', () => {
    expect(cellSizes({ width: 600, height: 600 }, 12, 300)).toMatchObject({ wide: 2, high: 16 })
  })

  it('labels as many tokens as fit, and always those in focus', () => {
    expect(visibleLabels(4, 20, [])).toEqual([0, 1, 2, 3])
    const few = visibleLabels(300, 2, [101])
    expect(few).toContain(101)
    expect(few.length).toBeLessThan(60)
  })

  it('moves in the direction of the arrow keys, also from right to left', () => {
    expect(moveCell({ row: 0, column: 0 }, 'ArrowRight', 3, 3, false)).toEqual({ row: 0, column: 1 })
    expect(moveCell({ row: 0, column: 0 }, 'ArrowLeft', 3, 3, true)).toEqual({ row: 0, column: 1 })
    expect(moveCell({ row: 2, column: 2 }, 'ArrowDown', 3, 3, false)).toEqual({ row: 2, column: 2 })
    expect(moveCell({ row: 0, column: 0 }, 'x', 3, 3, false)).toBeNull()
  })
})

describe('lines', () => {
  const places = { left: (query: number) => query, right: (key: number) => key, width: 100 }
  it('are grouped by weight, without the smallest weights', () => {
    const found = bundles({ rows: 1, columns: 4, data: Float32Array.from([0.95, 0.92, 0.3, 0.001]) }, places)
    expect(found.map(({ weight }) => weight)).toEqual([0.4, 1])
    expect(found[1]!.path.match(/M/g)).toHaveLength(2)
  })
})

describe('the computation', () => {
  const stage = (name: string, shape: number[]) => ({ name, shape, formula: '', tensor: name, note: '' })

  it('groups stages under headings in order', () => {
    const found = groupStages(['embedding', 'q', 'k', 'scores', 'weights', 'mixed', 'a new one'].map((name) => stage(name, [4])))
    expect(found.map(({ stages }) => stages.map(({ name }) => name))).toEqual([['embedding'], ['q', 'k'], ['scores', 'weights'], ['mixed', 'a new one']])
  })

  it('shows one number per key, even if a vector has the same length', () => {
    const message = { keys: [1, 2, 3, 4] as never[] }
    expect(displayKind(stage('weights', [4]), message)).toBe('keys')
    expect(displayKind(stage('q', [4]), message)).toBe('vector')
    expect(displayKind(stage('k', [4, 8]), message)).toBe('matrix')
  })

  it('calculates the weight of one key', () => {
    const tensors = new Map(Object.entries({ q: [1, 2], k: [3, 1, 0, 0], scores: [2.5, 0], masked: [2.5, 0], weights: [0.924, 0.076] }).map(
      ([name, data]) => [name, { shape: [data.length], data: Float32Array.from(data) }]))
    const lines = calculation(tensors, [{ name: 'scores', formula: 'score = q·k / √4' }], 0)
    expect(lines[0]).toContain('= 5.00')
    expect(lines[1]).toBe('score = 5.00 / √4 = 5.00 / 2.00 = 2.50')
    expect(lines[2]).toBe('weight = e^2.50 / Σ e^score = 12.182 / 13.182 = 0.924')
    const biased = calculation(new Map([...tensors, ['bias', { shape: [2], data: Float32Array.from([-0.5, 0]) }]]), [{ name: 'scores', formula: 'score = q·k / √4 + bias' }], 0)
    expect(biased[1]).toBe('score = 5.00 / √4 − 0.50 = 5.00 / 2.00 − 0.50 = 2.50')
    expect(calculation(tensors, [{ name: 'scores', formula: 'score = qᵀ W k' }], 0)[0]).toBe('score = qᵀ W k = 2.50')
  })
})
