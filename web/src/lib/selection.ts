/** What one attention looks like by the controls: which weights, of which tokens, in which order, with which labels. */

import type { State } from './address'
import type { Part, Token } from './messages'
import type { Reading } from './reading.svelte'
import { filtered } from './scale'
import { shaped } from './script'
import {
  crossRollout, grouped, isPlain, maxOf, meanOf, merged, oneHead, rollout, type Group, type Layer, type Matrix,
} from './weights'

export type Side = 'source' | 'target'

/** The tokens along one edge of a matrix. */
export interface Edge {
  readonly side: Side
  readonly tokens: readonly Token[]
  readonly groups: readonly Group[]
  readonly labels: readonly string[]
  readonly rtl: boolean
  /** Place in the sequence of the first token here: −1 where the keys begin with the begin symbol. */
  readonly shift: number
}

export interface Selection {
  readonly part: Part
  readonly layer: number
  readonly heads: readonly number[]
  /** All weights, and those that the threshold or the number of places lets through. */
  readonly full: Matrix
  readonly matrix: Matrix
  readonly queries: Edge
  readonly keys: Edge
}

export type Wish = Pick<State, 'aggregate' | 'words' | 'specials' | 'threshold' | 'top'>

export interface At {
  part: Part
  layer: number
  heads: readonly number[]
}

const BEGIN: Token = { piece: '<s>', text: '<s>', id: -1, word: null, special: true }

/** What is written for a token: its text, or its piece where there is none, or a sign for a space. */
export function label(token: Pick<Token, 'text' | 'piece'>): string {
  const text = token.text || token.piece.replaceAll('▁', ' ')
  return text.trim() || '␣'
}

/** Whether each token goes on the word of the one before it. */
export function continuing(tokens: readonly Token[]): boolean[] {
  return tokens.map((token, i) => {
    const before = tokens[i - 1]
    return before !== undefined && !token.special && !before.special && token.word !== null && token.word === before.word
  })
}

/** What is written for each token of a sequence, with joiners where a cut parts Arabic letters. */
export function labels(tokens: readonly Token[]): string[] {
  return shaped(tokens.map(label), continuing(tokens))
}

function edge(side: Side, tokens: readonly Token[], rtl: boolean, shift: number, wish: Wish): Edge {
  const groups = grouped(tokens, wish.words, wish.specials)
  const single = labels(tokens)
  const written = groups.map(({ members }) =>
    members.length === 1 ? single[members[0]!]! : members.map((place) => label(tokens[place]!)).join(''),
  )
  return { side, tokens, groups, labels: written, rtl, shift }
}

/** The weights by the wish for one head or several together; nothing while a layer is missing. */
function weights(reading: Reading, at: At, wish: Wish): Matrix | null {
  const layer = reading.layer(at.part, at.layer)
  if (!layer) return null
  if (wish.aggregate === 'rollout') return rolled(reading, at, layer)
  if (wish.aggregate === 'max') return maxOf(layer, at.heads.length > 1 ? at.heads : [])
  if (wish.aggregate === 'mean') return meanOf(layer, at.heads.length > 1 ? at.heads : [])
  const [first = 0, ...others] = at.heads.filter((head) => head < layer.heads)
  return others.length ? meanOf(layer, [first, ...others]) : oneHead(layer, first)
}

function rolled(reading: Reading, at: At, layer: Layer): Matrix | null {
  if (at.part === 'cross') {
    let top = 0
    while (reading.layer('encoder', top)) top++
    return crossRollout(layer, top ? reading.upTo('encoder', top - 1) : [])
  }
  const layers = reading.upTo(at.part, at.layer)
  return layers.length ? rollout(layers) : null
}

/** The selection, or nothing while its weights are still to come. */
export function select(reading: Reading, at: At, wish: Wish, rtl: { source: boolean; target: boolean }): Selection | null {
  const raw = weights(reading, at, wish)
  if (!raw) return null
  const { source, target } = reading
  const queries = at.part === 'encoder' ? edge('source', source, rtl.source, 0, wish) : edge('target', target, rtl.target, 0, wish)
  const keys =
    at.part === 'decoder'
      ? edge('target', [BEGIN, ...target.slice(0, -1)], rtl.target, -1, wish)
      : edge('source', source, rtl.source, 0, wish)
  if (raw.rows !== queries.tokens.length || raw.columns !== keys.tokens.length) return null
  const plain = isPlain(queries.groups, raw.rows) && isPlain(keys.groups, raw.columns)
  const full = plain ? raw : merged(raw, queries.groups, keys.groups)
  const filter = wish.top > 0 ? ({ by: 'top', count: wish.top } as const) : ({ by: 'threshold', least: wish.threshold } as const)
  return { ...at, full, matrix: filtered(full, filter), queries, keys }
}

/** A number as people read weights: two digits, and no zero that is not one. */
export function readable(weight: number): string {
  if (weight !== 0 && Math.abs(weight) < 0.005) return weight < 0 ? '> −0.01' : '< 0.01'
  return weight.toFixed(2).replace('-', '−')
}
