/** Lines from queries to keys, grouped into a few SVG paths by weight. */

import { linkHorizontal } from 'd3-shape'
import type { Matrix } from './weights'

export interface Bundle {
  /** The largest weight of the lines in this path. */
  weight: number
  path: string
}

export interface LinePositions {
  left: (query: number) => number
  right: (key: number) => number
  width: number
}

const STEPS = 10
/** Lines of smaller weights are never drawn, because they are invisible. */
export const FAINTEST = 0.02

interface Link {
  source: [number, number]
  target: [number, number]
}

const link = linkHorizontal<Link, [number, number]>().x((point) => point[0]).y((point) => point[1])

/** Return the path of one line. */
export function line(positions: LinePositions, query: number, key: number): string {
  return link({ source: [0, positions.left(query)], target: [positions.width, positions.right(key)] }) ?? ''
}

/** Return all lines as at most ten paths: the cost of a path hardly depends on the number of its lines. */
export function bundles(matrix: Matrix, positions: LinePositions, only: (query: number, key: number) => boolean = () => true): Bundle[] {
  const paths = Array.from({ length: STEPS }, (): string[] => [])
  for (let query = 0; query < matrix.rows; query++) {
    for (let key = 0; key < matrix.columns; key++) {
      const weight = Math.abs(matrix.data[query * matrix.columns + key]!)
      if (weight < FAINTEST || !only(query, key)) continue
      paths[Math.min(STEPS - 1, Math.floor(weight * STEPS))]!.push(line(positions, query, key))
    }
  }
  return paths.flatMap((parts, step) => (parts.length ? [{ weight: (step + 1) / STEPS, path: parts.join('') }] : []))
}
