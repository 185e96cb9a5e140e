/** The token or cell in focus: what it highlights in a selection, and how it is described in words. */

import type { Focus } from './explorer.svelte'
import { readable, type Edge, type Selection, type Side } from './selection'
import { isolated } from './script'
import { columnOf, groupOf, ranks, rowOf } from './weights'

/** Return the group of a token along an edge, or −1. */
export function groupAt(edge: Edge, place: number): number {
  return groupOf(edge.groups, place - edge.shift)
}

/** Return the focus on a token: a query if the queries are on its side, otherwise a key. */
export function focusOn(selection: Selection, side: Side, place: number): Focus | null {
  if (selection.queries.side === side) {
    const query = groupAt(selection.queries, place)
    return query < 0 ? null : { query, key: null }
  }
  if (selection.keys.side !== side) return null
  const key = groupAt(selection.keys, place)
  return key < 0 ? null : { query: null, key }
}

/** Return the weight of each token of a side for the query or key in focus, or null if the focus is on that side. */
export function tokenWeights(selection: Selection, focus: Focus | null, side: Side, count: number): Float32Array | null {
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

/** Return the tokens of a side that are in focus themselves. */
export function highlighted(selection: Selection, focus: Focus | null, side: Side): ReadonlySet<number> {
  const places = new Set<number>()
  const add = (edge: Edge, group: number | null) => {
    if (group === null || edge.side !== side) return
    for (const member of edge.groups[group]?.members ?? []) places.add(member + edge.shift)
  }
  add(selection.queries, focus?.query ?? null)
  add(selection.keys, focus?.key ?? null)
  return places
}

/** Returns the exact weights of a query, if they are known. */
export type Exact = (query: number) => Float32Array | undefined

/** Describe the focus in words: «query 'Katze', key 'cat', 0.62, rank 1». */
export function focusText(selection: Selection, focus: Focus | null, exact: Exact = () => undefined): string {
  if (!focus) return ''
  const { queries, keys, full } = selection
  if (focus.query === null) {
    const column = focus.key === null ? null : columnOf(full, focus.key)
    return column ? `key '${named(keys, focus.key!)}', attended by ${heaviest(column, queries.labels)}` : ''
  }
  const row = exact(focus.query) ?? rowOf(full, focus.query)
  const query = `query '${named(queries, focus.query)}'`
  if (focus.key === null) return `${query}, attends to ${heaviest(row, keys.labels)}`
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
