/** How a look at one token lights up the others: rows, columns and shades of the selection. */

import type { Focus } from './explorer.svelte'
import { readable, type Edge, type Selection, type Side } from './selection'
import { isolated } from './script'
import { columnOf, groupOf, ranks, rowOf } from './weights'

/** The place along an edge of a token of the sequence, as a group; −1 if it is not there. */
export function groupAt(edge: Edge, place: number): number {
  return groupOf(edge.groups, place - edge.shift)
}

/** What a look at a token of a side means for a selection: a query if that side asks, else a key. */
export function focusOn(selection: Selection, side: Side, place: number): Focus | null {
  if (selection.queries.side === side) {
    const query = groupAt(selection.queries, place)
    return query < 0 ? null : { query, key: null }
  }
  if (selection.keys.side !== side) return null
  const key = groupAt(selection.keys, place)
  return key < 0 ? null : { query: null, key }
}

/** For each token of a side the weight it gets or gives by what is looked at; nothing where that says nothing. */
export function shades(selection: Selection, focus: Focus | null, side: Side, count: number): Float32Array | null {
  if (!focus) return null
  const { queries, keys, full } = selection
  const [edge, values] =
    focus.query !== null && keys.side === side
      ? [keys, rowOf(full, focus.query)]
      : focus.key !== null && focus.query === null && queries.side === side
        ? [queries, columnOf(full, focus.key)]
        : [null, null]
  if (!edge) return null
  const result = new Float32Array(count)
  edge.groups.forEach(({ members }, group) => {
    for (const member of members) {
      const place = member + edge.shift
      if (place >= 0 && place < count) result[place] = values[group]!
    }
  })
  return result
}

/** Tokens of a side that are looked at themselves. */
export function lit(selection: Selection, focus: Focus | null, side: Side): ReadonlySet<number> {
  const places = new Set<number>()
  const add = (edge: Edge, group: number | null) => {
    if (group === null || edge.side !== side) return
    for (const member of edge.groups[group]?.members ?? []) places.add(member + edge.shift)
  }
  add(selection.queries, focus?.query ?? null)
  add(selection.keys, focus?.key ?? null)
  return places
}

/** The exact weights of the row of a query, where they are known. */
export type Exact = (query: number) => Float32Array | undefined

/** The line that says what is looked at: «query 'Katze', key 'cat', 0.62, rank 1». */
export function spoken(selection: Selection, focus: Focus | null, exact: Exact = () => undefined): string {
  if (!focus) return ''
  const { queries, keys, full } = selection
  if (focus.query === null) {
    const column = focus.key === null ? null : columnOf(full, focus.key)
    return column ? `key '${named(keys, focus.key!)}', looked at by ${heaviest(column, queries.labels)}` : ''
  }
  const row = exact(focus.query) ?? rowOf(full, focus.query)
  const query = `query '${named(queries, focus.query)}'`
  if (focus.key === null) return `${query}, looks at ${heaviest(row, keys.labels)}`
  const weight = row[focus.key] ?? 0
  const digits = exact(focus.query) ? exactly(weight) : readable(weight)
  return `${query}, key '${named(keys, focus.key)}', ${digits}, rank ${ranks(row)[focus.key]}`
}

function named(edge: Edge, group: number): string {
  return isolated(edge.labels[group] ?? '')
}

function heaviest(weights: Float32Array, labels: readonly string[]): string {
  const order = Array.from(weights.keys()).sort((a, b) => weights[b]! - weights[a]!)
  return order.slice(0, 3).map((i) => `'${isolated(labels[i]!)}' ${readable(weights[i]!)}`).join(', ')
}

function exactly(weight: number): string {
  return weight >= 0.0005 || weight === 0 ? weight.toFixed(3) : weight.toExponential(1).replace('-', '−')
}
