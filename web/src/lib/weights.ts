/**
 * Attention weights, from the bytes of a frame to the matrix on the screen.
 *
 * In: per layer, round(255·√w) of every head. Out: a matrix of one head, or of the mean, the maximum or the rollout of
 * several; then merged to words and freed of special tokens, if wished.
 */

import type { Token } from './messages'

/** The weights of one layer of one part, as they came: [heads, queries, keys]. */
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

/** What a byte of a frame stands for: w = (byte / 255)². */
export const WEIGHT_OF_BYTE = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2)

/** A matrix of zeros. */
export function zeros(rows: number, columns: number): Matrix {
  return { rows, columns, data: new Float32Array(rows * columns) }
}

/** One head of a layer. */
export function oneHead(layer: Layer, head: number): Matrix {
  const size = layer.queries * layer.keys
  const data = new Float32Array(size)
  const start = head * size
  for (let i = 0; i < size; i++) data[i] = WEIGHT_OF_BYTE[layer.data[start + i]!]!
  return { rows: layer.queries, columns: layer.keys, data }
}

/** The mean of some heads (all of them, if none is named). */
export function meanOf(layer: Layer, heads: readonly number[]): Matrix {
  const chosen = heads.length ? heads : all(layer)
  const sum = zeros(layer.queries, layer.keys)
  for (const head of chosen) {
    const one = oneHead(layer, head)
    for (let i = 0; i < one.data.length; i++) sum.data[i]! += one.data[i]! / chosen.length
  }
  return sum
}

/** The largest weight any of some heads gives (all of them, if none is named). */
export function maxOf(layer: Layer, heads: readonly number[]): Matrix {
  const most = zeros(layer.queries, layer.keys)
  for (const head of heads.length ? heads : all(layer)) {
    const one = oneHead(layer, head)
    for (let i = 0; i < one.data.length; i++) most.data[i] = Math.max(most.data[i]!, one.data[i]!)
  }
  return most
}

function all(layer: Layer): number[] {
  return Array.from({ length: layer.heads }, (_, head) => head)
}

/**
 * Attention rollout of self-attention layers, lowest first (Abnar and Zuidema 2020, §3): each layer is half its mean
 * head and half the residual path, and what reaches the top is their product.
 */
export function rollout(layers: readonly Layer[]): Matrix {
  let flow: Matrix | null = null
  for (const layer of layers) {
    const step = normalised(withResidual(meanOf(layer, [])))
    flow = flow ? product(step, flow) : step
  }
  return flow ?? zeros(0, 0)
}

/** Rollout through cross-attention: from a target position over the encoder's states down to the source tokens. */
export function crossRollout(cross: Layer, encoder: readonly Layer[]): Matrix {
  const mean = meanOf(cross, [])
  return encoder.length ? product(mean, rollout(encoder)) : mean
}

function withResidual({ rows, columns, data }: Matrix): Matrix {
  const half = data.map((weight) => weight / 2)
  for (let i = 0; i < Math.min(rows, columns); i++) half[i * columns + i]! += 0.5
  return { rows, columns, data: half }
}

/** The matrix product a·b. */
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

/** Every row divided by its sum; a row without weight stays without. */
export function normalised({ rows, columns, data }: Matrix): Matrix {
  const result = data.slice()
  for (let row = 0; row < rows; row++) {
    const part = result.subarray(row * columns, (row + 1) * columns)
    const sum = part.reduce((total, weight) => total + weight, 0)
    if (sum > 0) for (let i = 0; i < columns; i++) part[i]! /= sum
  }
  return { rows, columns, data: result }
}

/** a − b, cell by cell. */
export function difference(a: Matrix, b: Matrix): Matrix {
  return { rows: a.rows, columns: a.columns, data: a.data.map((weight, i) => weight - (b.data[i] ?? 0)) }
}

/** How much the weights of each head of a layer changed: half the sum of all changes of a row, averaged over the rows. */
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

/** Tokens shown as one: their places in the sequence, and what is written. */
export interface Group {
  readonly members: readonly number[]
  readonly text: string
  readonly special: boolean
}

/** Tokens as they are shown: one by one or by word, with or without the special ones. */
export function grouped(tokens: readonly Token[], byWord: boolean, withSpecials: boolean): Group[] {
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
 * A matrix over tokens as one over groups: what the keys of a word get is added, what its queries give is averaged, and
 * where keys were left out each row is divided by what is left of it.
 */
export function merged(matrix: Matrix, queries: readonly Group[], keys: readonly Group[]): Matrix {
  const result = zeros(queries.length, keys.length)
  queries.forEach((query, row) => {
    keys.forEach((key, column) => {
      let sum = 0
      for (const i of query.members) for (const j of key.members) sum += matrix.data[i * matrix.columns + j] ?? 0
      result.data[row * keys.length + column] = sum / query.members.length
    })
  })
  const kept = keys.reduce((count, key) => count + key.members.length, 0)
  return kept < matrix.columns ? normalised(result) : result
}

/** Whether each token is a group of its own, so that merging would change nothing. */
export function isPlain(groups: readonly Group[], count: number): boolean {
  return groups.length === count
}

/** The place of the group that holds a token, or -1. */
export function groupOf(groups: readonly Group[], place: number): number {
  return groups.findIndex(({ members }) => members.includes(place))
}

/** Places in a row by weight, heaviest first: `ranks[column]` is 1 for the largest. */
export function ranks(row: Float32Array): number[] {
  const order = Array.from(row.keys()).sort((a, b) => row[b]! - row[a]!)
  const result = new Array<number>(row.length)
  order.forEach((column, rank) => (result[column] = rank + 1))
  return result
}

/** One row of a matrix. */
export function rowOf(matrix: Matrix, row: number): Float32Array {
  return matrix.data.subarray(row * matrix.columns, (row + 1) * matrix.columns)
}

/** One column of a matrix. */
export function columnOf(matrix: Matrix, column: number): Float32Array {
  return Float32Array.from({ length: matrix.rows }, (_, row) => matrix.data[row * matrix.columns + column]!)
}
