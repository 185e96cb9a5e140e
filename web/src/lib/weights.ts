/**
 * Attention weights, from the bytes of a frame to the matrix on the screen.
 *
 * A frame holds round(255·√w) for every head of a layer. The screen shows one head, or the mean, maximum or rollout of
 * several, merged to words and without special tokens if the controls say so.
 */

import type { Token } from './messages'

/** The encoded weights of one attention layer, of shape [heads, queries, keys]. */
export interface Layer {
  readonly heads: number
  readonly queries: number
  readonly keys: number
  readonly data: Uint8Array
}

export interface Matrix {
  readonly rows: number
  readonly columns: number
  readonly data: Float32Array
}

export type Aggregate = 'head' | 'mean' | 'max' | 'rollout'

/** The weight that each byte encodes: w = (byte / 255)². */
export const WEIGHT_OF_BYTE = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2)

/** Return a matrix of zeros. */
export function zeros(rows: number, columns: number): Matrix {
  return { rows, columns, data: new Float32Array(rows * columns) }
}

/** Return the weights of one head. */
export function headMatrix(layer: Layer, head: number): Matrix {
  const size = layer.queries * layer.keys
  const data = new Float32Array(size)
  const start = head * size
  for (let i = 0; i < size; i++) data[i] = WEIGHT_OF_BYTE[layer.data[start + i]!]!
  return { rows: layer.queries, columns: layer.keys, data }
}

/** Return the mean of some heads, or of all heads if the list is empty. */
export function meanOf(layer: Layer, heads: readonly number[]): Matrix {
  const chosen = heads.length ? heads : all(layer)
  const sum = zeros(layer.queries, layer.keys)
  for (const head of chosen) {
    const { data } = headMatrix(layer, head)
    for (let i = 0; i < data.length; i++) sum.data[i]! += data[i]! / chosen.length
  }
  return sum
}

/** Return the element-wise maximum of some heads, or of all heads if the list is empty. */
export function maxOf(layer: Layer, heads: readonly number[]): Matrix {
  const most = zeros(layer.queries, layer.keys)
  for (const head of heads.length ? heads : all(layer)) {
    const { data } = headMatrix(layer, head)
    for (let i = 0; i < data.length; i++) most.data[i] = Math.max(most.data[i]!, data[i]!)
  }
  return most
}

function all(layer: Layer): number[] {
  return Array.from({ length: layer.heads }, (_, head) => head)
}

/**
 * Attention rollout of self-attention layers, lowest first (Abnar and Zuidema 2020, §3): the product of all layers,
 * each the average of its mean head and the identity, which stands for the residual connection.
 */
export function rollout(layers: readonly Layer[]): Matrix {
  let flow: Matrix | null = null
  for (const layer of layers) {
    const step = normalizeRows(withResidual(meanOf(layer, [])))
    flow = flow ? product(step, flow) : step
  }
  return flow ?? zeros(0, 0)
}

/** Rollout through cross-attention and then through the encoder, down to the source tokens. */
export function crossRollout(cross: Layer, encoder: readonly Layer[]): Matrix {
  const mean = meanOf(cross, [])
  return encoder.length ? product(mean, rollout(encoder)) : mean
}

function withResidual({ rows, columns, data }: Matrix): Matrix {
  const half = data.map((weight) => weight / 2)
  for (let i = 0; i < Math.min(rows, columns); i++) half[i * columns + i]! += 0.5
  return { rows, columns, data: half }
}

/** Return the matrix product a·b. */
export function product(a: Matrix, b: Matrix): Matrix {
  const result = zeros(a.rows, b.columns)
  for (let i = 0; i < a.rows; i++) {
    for (let j = 0; j < a.columns; j++) {
      const weight = a.data[i * a.columns + j]!
      if (weight === 0) continue
      for (let k = 0; k < b.columns; k++) result.data[i * b.columns + k]! += weight * b.data[j * b.columns + k]!
    }
  }
  return result
}

/** Divide every row by its sum; a row of zeros stays zero. */
export function normalizeRows({ rows, columns, data }: Matrix): Matrix {
  const result = data.slice()
  for (let row = 0; row < rows; row++) {
    const part = result.subarray(row * columns, (row + 1) * columns)
    const sum = part.reduce((total, weight) => total + weight, 0)
    if (sum > 0) for (let i = 0; i < columns; i++) part[i]! /= sum
  }
  return { rows, columns, data: result }
}

/** Return the element-wise difference a − b. */
export function difference(a: Matrix, b: Matrix): Matrix {
  return { rows: a.rows, columns: a.columns, data: a.data.map((weight, i) => weight - (b.data[i] ?? 0)) }
}

/** Return how much the weights of each head changed: the total variation distance of its rows, averaged. */
export function shifts(before: Layer, after: Layer): number[] {
  const size = before.queries * before.keys
  if (size !== after.queries * after.keys) return []
  return Array.from({ length: before.heads }, (_, head) => {
    let sum = 0
    for (let i = head * size; i < (head + 1) * size; i++) {
      sum += Math.abs(WEIGHT_OF_BYTE[after.data[i]!]! - WEIGHT_OF_BYTE[before.data[i]!]!)
    }
    return before.queries ? sum / 2 / before.queries : 0
  })
}

/** Tokens that are shown as one: their indices and their text. */
export interface Group {
  readonly members: readonly number[]
  readonly text: string
  readonly special: boolean
}

/** Group tokens by word, or each alone, with or without special tokens. */
export function groupTokens(tokens: readonly Token[], byWord: boolean, withSpecials: boolean): Group[] {
  const groups: { members: number[]; text: string; special: boolean; word: number | null }[] = []
  tokens.forEach((token, place) => {
    if (token.special && !withSpecials) return
    const word = token.special ? null : token.word
    const previous = groups[groups.length - 1]
    if (byWord && word !== null && previous?.word === word) {
      previous.members.push(place)
      previous.text += token.text
    } else {
      groups.push({ members: [place], text: token.text, special: token.special, word })
    }
  })
  return groups
}

/**
 * Convert a matrix over tokens to one over groups: sum over the keys of a group, average over its queries, and
 * normalise the rows if some keys were left out.
 */
export function mergeGroups(matrix: Matrix, queries: readonly Group[], keys: readonly Group[]): Matrix {
  const result = zeros(queries.length, keys.length)
  queries.forEach((query, row) => {
    keys.forEach((key, column) => {
      let sum = 0
      for (const i of query.members) for (const j of key.members) sum += matrix.data[i * matrix.columns + j] ?? 0
      result.data[row * keys.length + column] = sum / query.members.length
    })
  })
  const covered = keys.reduce((count, key) => count + key.members.length, 0)
  return covered < matrix.columns ? normalizeRows(result) : result
}

/** Return whether every token is a group of its own, so that merging changes nothing. */
export function isPlain(groups: readonly Group[], count: number): boolean {
  return groups.length === count
}

/** Return the index of the group that contains a token, or −1. */
export function groupOf(groups: readonly Group[], place: number): number {
  return groups.findIndex(({ members }) => members.includes(place))
}

/** Return the rank of each column of a row; 1 is the largest weight. */
export function ranks(row: Float32Array): number[] {
  const order = Array.from(row.keys()).sort((a, b) => row[b]! - row[a]!)
  const result = new Array<number>(row.length)
  order.forEach((column, rank) => (result[column] = rank + 1))
  return result
}

/** Return a row of a matrix. */
export function rowOf(matrix: Matrix, row: number): Float32Array {
  return matrix.data.subarray(row * matrix.columns, (row + 1) * matrix.columns)
}

/** Return a column of a matrix. */
export function columnOf(matrix: Matrix, column: number): Float32Array {
  return Float32Array.from({ length: matrix.rows }, (_, row) => matrix.data[row * matrix.columns + column]!)
}
