/** Attention as lines from queries to keys: only those worth drawing, gathered into a few paths by their weight. */

import { linkHorizontal } from 'd3-shape'
import type { Matrix } from './weights'

export interface Bundle {
  /** The strongest weight of the lines in this path. */
  weight: number
  path: string
}

export interface Places {
  left: (query: number) => number
  right: (key: number) => number
  width: number
}

const STEPS = 10
/** Lines lighter than this are not drawn even without a threshold: they could not be seen. */
export const FAINTEST = 0.02

interface Link {
  source: [number, number]
  target: [number, number]
}

const link = linkHorizontal<Link, [number, number]>().x((point) => point[0]).y((point) => point[1])

/** One line. */
export function line(places: Places, query: number, key: number): string {
  return link({ source: [0, places.left(query)], target: [places.width, places.right(key)] }) ?? ''
}

/** All lines, as at most ten paths: a path costs the browser the same however many lines are in it. */
export function bundles(matrix: Matrix, places: Places, only: (query: number, key: number) => boolean = () => true): Bundle[] {
  const paths = Array.from({ length: STEPS }, (): string[] => [])
  for (let query = 0; query < matrix.rows; query++) {
    for (let key = 0; key < matrix.columns; key++) {
      const weight = Math.abs(matrix.data[query * matrix.columns + key]!)
      if (weight < FAINTEST || !only(query, key)) continue
      paths[Math.min(STEPS - 1, Math.floor(weight * STEPS))]!.push(line(places, query, key))
    }
  }
  return paths.flatMap((parts, step) => (parts.length ? [{ weight: (step + 1) / STEPS, path: parts.join('') }] : []))
}
