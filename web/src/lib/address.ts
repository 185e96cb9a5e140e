/**
 * The state of the page, and its encoding in the URL fragment: `#view=atlas&layer=2&head=3`.
 *
 * Layers, heads, sentences and words count from 1 in the URL, as on the screen and in figures, and from 0 in the program. Values equal to
 * their default are left out, except layer and head.
 */

import type { Change, InputField, Level, Part } from './messages'
import type { Palette } from './palette'
import type { Scale } from './scale'
import type { Aggregate } from './weights'

export const VIEWS = ['workbench', 'atlas', 'stepper', 'whatif', 'beam', 'maths', 'positions'] as const
export type View = (typeof VIEWS)[number]
export const PARTS = ['encoder', 'decoder', 'cross'] as const satisfies readonly Part[]
export const INPUT_FIELDS = ['source', 'text', 'history'] as const satisfies readonly InputField[]
export const AGGREGATES = ['head', 'mean', 'max', 'rollout'] as const satisfies readonly Aggregate[]
export const SCALES = ['linear', 'sqrt', 'log'] as const satisfies readonly Scale[]
export const PALETTES = ['cividis', 'blues', 'greys'] as const satisfies readonly Palette[]
export const THEMES = ['auto', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]
export const SORTS = ['layer', 'confidence', 'entropy', 'distance', 'effect'] as const
export type Sort = (typeof SORTS)[number]
export const LAYOUTS = ['rank', 'tree'] as const
export type Layout = (typeof LAYOUTS)[number]
export const LEVELS = ['sentence', 'word'] as const satisfies readonly Level[]
const ABLATIONS = ['zero', 'mean', 'uniform'] as const

/** A pinned query or key, by its position among the tokens. */
export interface Pin {
  side: 'query' | 'key'
  place: number
}

export interface State {
  view: View
  model: string
  /** Input text by the name of a model's input field; switching between tasks keeps both. */
  inputs: Record<InputField, string>
  /** A given output instead of one found by search; empty if it is to be found. */
  target: string
  part: Part
  layer: number
  heads: number[]
  aggregate: Aggregate
  words: boolean
  specials: boolean
  scale: Scale
  threshold: number
  top: number
  palette: Palette
  theme: Theme
  sort: Sort
  beam: number
  /** Ids that the output is forced to begin with. */
  prefix: number[]
  changes: Change[]
  pin: Pin | null
  step: number
  /** Number of positions in the positions view. */
  count: number
  /** Layout of the beam tree, and whether it shows pruned nodes. */
  layout: Layout
  pruned: boolean
  /** The class whose probability is shown to change; empty for the predicted one. */
  label: string
  /** Number of turns that a chatbot reads; 0 for as many as in training. */
  turns: number
  /** Random seed of sampling a reply; null for beam search. */
  seed: number | null
  temperature: number
}

/** Return the initial state. */
export function defaults(): State {
  return {
    view: 'workbench', model: '', inputs: { source: '', text: '', history: '' }, target: '', part: 'cross', layer: 0, heads: [0], aggregate: 'head',
    words: false, specials: true, scale: 'sqrt', threshold: 0, top: 0, palette: 'cividis', theme: 'auto',
    sort: 'layer', beam: 1, prefix: [], changes: [], pin: null, step: 0, count: 128, layout: 'rank', pruned: true, label: '',
    turns: 0, seed: null, temperature: 1,
  }
}

/** Encode the state as a URL fragment, without the `#`. */
export function formatState(state: State): string {
  const base = defaults()
  const entries: [string, string][] = []
  const add = (name: string, value: string, usual: string) => value !== usual && entries.push([name, value])
  for (const name of ['view', 'model'] as const) add(name, state[name], base[name])
  for (const name of INPUT_FIELDS) add(name, state.inputs[name], '')
  for (const name of ['target', 'part'] as const) add(name, state[name], base[name])
  // Always present: a link without layer and head opens the most confident head.
  add('layer', String(state.layer + 1), '')
  add('head', state.heads.map((head) => head + 1).join(','), '')
  add('aggregate', state.aggregate, base.aggregate)
  add('words', yesNo(state.words), yesNo(base.words))
  add('specials', yesNo(state.specials), yesNo(base.specials))
  add('scale', state.scale, base.scale)
  add('threshold', String(state.threshold), '0')
  add('top', String(state.top), '0')
  for (const name of ['palette', 'theme', 'sort'] as const) add(name, state[name], base[name])
  add('beam', String(state.beam), '1')
  add('prefix', state.prefix.join(','), '')
  add('changes', state.changes.map(formatChange).join(';'), '')
  add('pin', state.pin ? `${state.pin.side}:${state.pin.place}` : '', '')
  add('step', String(state.step), '0')
  add('count', String(state.count), '128')
  add('layout', state.layout, base.layout)
  add('pruned', yesNo(state.pruned), yesNo(base.pruned))
  add('class', state.label, base.label)
  add('turns', String(state.turns), '0')
  add('seed', state.seed === null ? '' : String(state.seed), '')
  add('temperature', String(state.temperature), '1')
  return entries.map(([name, value]) => `${name}=${escape(value)}`).join('&')
}

/** Escape only what a fragment cannot contain, so that it stays readable. */
function escape(value: string): string {
  return encodeURIComponent(value).replace(/%20/g, '+').replace(/%(2C|3A|3B|2F)/g, (code) => decodeURIComponent(code))
}

function yesNo(value: boolean): string {
  return value ? 'yes' : 'no'
}

/** Decode a URL fragment; missing and invalid values get their default. */
export function parseState(hash: string): State {
  const values = new URLSearchParams(hash.replace(/^#/, ''))
  const state = defaults()
  const option = <T extends string>(name: string, allowed: readonly T[], usual: T): T =>
    allowed.find((value) => value === values.get(name)) ?? usual
  return {
    view: option('view', VIEWS, state.view),
    model: values.get('model') ?? '',
    inputs: { source: values.get('source') ?? '', text: values.get('text') ?? '', history: values.get('history') ?? '' },
    target: values.get('target') ?? '',
    part: option('part', PARTS, state.part),
    layer: natural(values.get('layer'), 1) - 1,
    heads: naturals(values.get('head') ?? '1').filter((head) => head >= 1).map((head) => head - 1),
    aggregate: option('aggregate', AGGREGATES, state.aggregate),
    words: values.get('words') === 'yes',
    specials: values.get('specials') !== 'no',
    scale: option('scale', SCALES, state.scale),
    threshold: fraction(values.get('threshold')),
    top: natural(values.get('top'), 0),
    palette: option('palette', PALETTES, state.palette),
    theme: option('theme', THEMES, state.theme),
    sort: option('sort', SORTS, state.sort),
    beam: natural(values.get('beam'), 1),
    prefix: naturals(values.get('prefix') ?? ''),
    changes: (values.get('changes') ?? '').split(';').flatMap(parseChange),
    pin: parsePin(values.get('pin')),
    step: natural(values.get('step'), 0),
    count: Math.min(512, natural(values.get('count') ?? '128', 1)),
    layout: option('layout', LAYOUTS, state.layout),
    pruned: values.get('pruned') !== 'no',
    label: values.get('class') ?? '',
    turns: natural(values.get('turns'), 0),
    seed: /^\d{1,9}$/.test(values.get('seed') ?? '') ? Number(values.get('seed')) : null,
    temperature: positive(values.get('temperature'), 100),
  }
}

function natural(text: string | null, least: number): number {
  const number = Number(text ?? NaN)
  return Number.isInteger(number) && number >= least ? number : least
}

function naturals(text: string): number[] {
  return text.split(',').filter((item) => /^\d+$/.test(item)).map(Number)
}

function fraction(text: string | null): number {
  const number = Number(text ?? NaN)
  return number >= 0 && number <= 1 ? number : 0
}

/** Return a positive number up to `most`, or 1. */
function positive(text: string | null, most: number): number {
  const number = Number(text ?? NaN)
  return number > 0 && number <= most ? number : 1
}

function parsePin(text: string | null): Pin | null {
  const match = /^(query|key):(\d+)$/.exec(text ?? '')
  return match ? { side: match[1] as Pin['side'], place: Number(match[2]) } : null
}

/** Encode a change: `ablate:cross.2.1,4:zero`, `keep:encoder.1.3`, `block:2,3`, `row:cross.2.1.5:0.5,0.5`, `erase:word.4,5`, `drop:1,2`, `edit:3:text`. */
export function formatChange(change: Change): string {
  const layer = ({ part, layer }: { part: Part; layer: number }) => `${part}.${layer + 1}`
  switch (change.op) {
    case 'ablate':
      return `ablate:${layer(change)}.${change.heads.map((head) => head + 1).join(',')}:${change.how}`
    case 'keep':
      return `keep:${layer(change)}.${change.heads.map((head) => head + 1).join(',')}`
    case 'block':
      return `block:${change.tokens.join(',')}`
    case 'erase':
      return `erase:${change.level}.${change.numbers.map((number) => number + 1).join(',')}`
    case 'drop':
      return `drop:${change.numbers.map((number) => number + 1).join(',')}`
    case 'edit':
      // Only what would end the change or its parts is escaped, so that the text stays readable.
      return `edit:${change.number + 1}:${change.text.replace(/[%:;]/g, encodeURIComponent)}`
    case 'row':
      return `row:${layer(change)}.${change.head + 1}.${change.query}:${change.weights.map((w) => +w.toFixed(4)).join(',')}`
  }
}

/** Decode a change as a list with one element, or an empty list if it is invalid. */
export function parseChange(text: string): Change[] {
  const [op, where = '', rest = ''] = text.split(':')
  if (op === 'block') return naturals(where).length ? [{ op, tokens: naturals(where) }] : []
  if (op === 'drop' || op === 'edit') return parseTurnChange(op, naturals(where).map((number) => number - 1), rest)
  const [name, layer, third = '', query] = where.split('.')
  if (op === 'erase') {
    const level = LEVELS.find((known) => known === name)
    const numbers = naturals(layer ?? '').map((number) => number - 1)
    return level && numbers.length && !numbers.includes(-1) ? [{ op, level, numbers }] : []
  }
  const part = PARTS.find((known) => known === name)
  if (!part || !/^[1-9]\d*$/.test(layer ?? '')) return []
  const place = { part, layer: Number(layer) - 1 }
  const heads = naturals(third).map((head) => head - 1)
  if (!heads.length || heads.some((head) => head < 0)) return []
  const how = ABLATIONS.find((known) => known === rest)
  if (op === 'ablate' && how) return [{ op, ...place, heads, how }]
  if (op === 'keep') return [{ op, ...place, heads }]
  if (op === 'row' && /^\d+$/.test(query ?? '')) {
    const weights = rest.split(',').map(Number)
    if (weights.every((weight) => weight >= 0)) return [{ op, ...place, head: heads[0]!, query: Number(query), weights }]
  }
  return []
}

function parseTurnChange(op: 'drop' | 'edit', numbers: number[], escaped: string): Change[] {
  const number = numbers[0]
  if (number === undefined || numbers.includes(-1)) return []
  if (op === 'drop') return [{ op, numbers }]
  const text = escaped.replace(/%(25|3A|3B)/g, (code) => decodeURIComponent(code))
  return text ? [{ op, number, text }] : []
}
