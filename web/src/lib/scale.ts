/** How a weight becomes a brightness: linear, square root or logarithm; and which weights are left out. */

import type { Matrix } from './weights'

export type Scale = 'linear' | 'sqrt' | 'log'

/** The smallest weight the logarithmic scale tells from nothing. */
export const LOG_FLOOR = 1e-3

/** A weight between 0 and 1 as a brightness between 0 and 1. */
export function brightness(weight: number, scale: Scale): number {
  if (weight <= 0) return 0
  if (scale === 'linear') return Math.min(1, weight)
  if (scale === 'sqrt') return Math.min(1, Math.sqrt(weight))
  return Math.min(1, Math.max(0, 1 - Math.log(weight) / Math.log(LOG_FLOOR)))
}

/** The weight at a brightness: the inverse, for the legend. */
export function weightAt(bright: number, scale: Scale): number {
  if (scale === 'linear') return bright
  if (scale === 'sqrt') return bright * bright
  return bright <= 0 ? 0 : Math.exp((1 - bright) * Math.log(LOG_FLOOR))
}

export type Filter = { by: 'threshold'; least: number } | { by: 'top'; count: number }

/** Weights that the filter lets through; the others become 0. Negative ones (differences) count by size. */
export function filtered(matrix: Matrix, filter: Filter): Matrix {
  const { rows, columns } = matrix
  if (filter.by === 'threshold') {
    if (filter.least <= 0) return matrix
    return { rows, columns, data: matrix.data.map((weight) => (Math.abs(weight) >= filter.least ? weight : 0)) }
  }
  const data = new Float32Array(matrix.data.length)
  for (let row = 0; row < rows; row++) {
    const weights = matrix.data.subarray(row * columns, (row + 1) * columns)
    const order = Array.from(weights.keys()).sort((a, b) => Math.abs(weights[b]!) - Math.abs(weights[a]!))
    for (const column of order.slice(0, filter.count)) data[row * columns + column] = weights[column]!
  }
  return { rows, columns, data }
}

/** The largest size of any entry, so that a legend can show the true range. */
export function largest(matrix: Matrix): number {
  let most = 0
  for (const weight of matrix.data) most = Math.max(most, Math.abs(weight))
  return most
}
