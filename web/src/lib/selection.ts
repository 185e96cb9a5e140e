/** Select the weights that are shown: one attention, aggregated, merged and filtered by the controls, with its labels. */

import type { State } from './address'
import type { Inspection } from './inspection.svelte'
import type { Part, Token } from './messages'
import { filterWeights } from './scale'
import { shaped } from './script'
import {
  crossRollout, groupTokens, headMatrix, isPlain, maxOf, meanOf, mergeGroups, rollout, type Group, type Layer, type Matrix,
} from './weights'

export type Side = 'source' | 'target'

/** The tokens along one edge of a matrix. */
export interface Edge {
  readonly side: Side
  readonly tokens: readonly Token[]
  readonly groups: readonly Group[]
  readonly labels: readonly string[]
  readonly rtl: boolean
  /** Position in the sequence of the first token: −1 if the keys begin with the start symbol. */
  readonly shift: number
}

export interface Selection {
  readonly part: Part
  readonly layer: number
  readonly heads: readonly number[]
  /** All weights, and those that pass the threshold or the limit on keys. */
  readonly full: Matrix
  readonly matrix: Matrix
  readonly queries: Edge
  readonly keys: Edge
  /** The number of keys that each query can attend to: self-attention of a decoder masks later keys. */
  readonly visible: readonly number[]
}

export type DisplayOptions = Pick<State, 'aggregate' | 'words' | 'specials' | 'threshold' | 'top'>

/** One attention: a part, a layer and some of its heads. */
export interface AttentionChoice {
  part: Part
  layer: number
  heads: readonly number[]
}

const START: Token = { piece: '<s>', text: '<s>', id: -1, word: null, special: true }

/** Return the label of a token: its text, or its piece if it has no text, with signs for line breaks and spaces. */
export function label(token: Pick<Token, 'text' | 'piece'>): string {
  const text = (token.text || token.piece.replaceAll('▁', ' ')).replaceAll('\n', '↵')
  return text.trim() || '␣'
}

/** Return whether each token continues the word of the token before it. */
export function continuing(tokens: readonly Token[]): boolean[] {
  return tokens.map((token, i) => {
    const before = tokens[i - 1]
    return before !== undefined && !token.special && !before.special && token.word !== null && token.word === before.word
  })
}

/** Return the labels of a sequence, with joiners where a token ends between joined Arabic letters. */
export function labels(tokens: readonly Token[]): string[] {
  return shaped(tokens.map(label), continuing(tokens))
}

function edge(side: Side, tokens: readonly Token[], rtl: boolean, shift: number, options: DisplayOptions): Edge {
  const groups = groupTokens(tokens, options.words, options.specials)
  const single = labels(tokens)
  const groupLabels = groups.map(({ members }) =>
    members.length === 1 ? single[members[0]!]! : members.map((index) => label(tokens[index]!)).join(''),
  )
  return { side, tokens, groups, labels: groupLabels, rtl, shift }
}

/** Return the weights of one head or of several aggregated; null while a layer is missing. */
function aggregate(inspection: Inspection, choice: AttentionChoice, options: DisplayOptions): Matrix | null {
  const layer = inspection.layer(choice.part, choice.layer)
  if (!layer) return null
  if (options.aggregate === 'rollout') return rolledOut(inspection, choice, layer)
  if (options.aggregate === 'max') return maxOf(layer, choice.heads.length > 1 ? choice.heads : [])
  if (options.aggregate === 'mean') return meanOf(layer, choice.heads.length > 1 ? choice.heads : [])
  const [first = 0, ...rest] = choice.heads.filter((head) => head < layer.heads)
  return rest.length ? meanOf(layer, [first, ...rest]) : headMatrix(layer, first)
}

function rolledOut(inspection: Inspection, choice: AttentionChoice, layer: Layer): Matrix | null {
  if (choice.part === 'cross') {
    let top = 0
    while (inspection.layer('encoder', top)) top++
    return crossRollout(layer, top ? inspection.upTo('encoder', top - 1) : [])
  }
  const layers = inspection.upTo(choice.part, choice.layer)
  return layers.length ? rollout(layers) : null
}

/** Return how many groups of keys begin at or before the last token of a query. */
function visibleKeys(query: Group, keys: readonly Group[]): number {
  const last = query.members[query.members.length - 1]!
  return keys.filter(({ members }) => members[0]! <= last).length
}

/** Return the selection, or null while its weights have not arrived. */
export function select(
  inspection: Inspection, choice: AttentionChoice, options: DisplayOptions, rtl: { source: boolean; target: boolean },
): Selection | null {
  const raw = aggregate(inspection, choice, options)
  if (!raw) return null
  const { source, target } = inspection
  const queries = choice.part === 'encoder' ? edge('source', source, rtl.source, 0, options) : edge('target', target, rtl.target, 0, options)
  const keys =
    choice.part === 'decoder'
      ? edge('target', [START, ...target.slice(0, -1)], rtl.target, -1, options)
      : edge('source', source, rtl.source, 0, options)
  if (raw.rows !== queries.tokens.length || raw.columns !== keys.tokens.length) return null
  const plain = isPlain(queries.groups, raw.rows) && isPlain(keys.groups, raw.columns)
  const full = plain ? raw : mergeGroups(raw, queries.groups, keys.groups)
  const filter = options.top > 0 ? ({ by: 'top', count: options.top } as const) : ({ by: 'threshold', least: options.threshold } as const)
  const visible = queries.groups.map((query) => (choice.part === 'decoder' ? visibleKeys(query, keys.groups) : keys.groups.length))
  return { ...choice, full, matrix: filterWeights(full, filter), queries, keys, visible }
}

/** Format a weight with two digits; a small weight is not shown as zero. */
export function readable(weight: number): string {
  if (weight !== 0 && Math.abs(weight) < 0.005) return weight < 0 ? '> −0.01' : '< 0.01'
  return decimal(weight)
}

/** Format a number with a fixed number of digits, a proper minus sign, and no negative zero. */
export function decimal(value: number, places = 2): string {
  const text = value.toFixed(places)
  return Number(text) === 0 ? text.replace('-', '') : text.replace('-', '−')
}
