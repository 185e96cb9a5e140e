/** Map weights to brightness (linear, square root or logarithmic), and filter small weights. */

import type { Matrix } from './weights'

export type Scale = 'linear' | 'sqrt' | 'log'

/** The smallest weight that the logarithmic scale distinguishes from zero. */
export const LOG_FLOOR = 1e-3

/** Return the brightness of a weight; both are between 0 and 1. */
export function brightness(weight: number, scale: Scale): number {
  if (weight <= 0) return 0
  if (scale === 'linear') return Math.min(1, weight)
  if (scale === 'sqrt') return Math.min(1, Math.sqrt(weight))
  return Math.min(1, Math.max(0, 1 - Math.log(weight) / Math.log(LOG_FLOOR)))
}

/** Return the weight of a brightness, the inverse of `brightness`, for legends. */
export function weightAt(bright: number, scale: Scale): number {
  if (scale === 'linear') return bright
  if (scale === 'sqrt') return bright * bright
  return bright <= 0 ? 0 : Math.exp((1 - bright) * Math.log(LOG_FLOOR))
}

export type Filter = { by: 'threshold'; least: number } | { by: 'top'; count: number }

/** Set the weights that a filter rejects to 0. Negative values (differences) are compared by their absolute value. */
export function filterWeights(matrix: Matrix, filter: Filter): Matrix {
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

/** Return the largest absolute value, so that a legend can show the true range. */
export function maxAbs(matrix: Matrix): number {
  let most = 0
  for (const weight of matrix.data) most = Math.max(most, Math.abs(weight))
  return most
}
