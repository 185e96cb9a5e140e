/**
 * The state of the page as the part of its address behind `#`, readable and complete: `#view=atlas&layer=2&head=3`.
 *
 * Layers and heads count from 1 here, as they do on the screen and in figures; inside the program they count from 0.
 * What has its default is left out, but for layer and head.
 */

import type { Change, Part } from './messages'
import type { Palette } from './palette'
import type { Scale } from './scale'
import type { Aggregate } from './weights'

export const VIEWS = ['workbench', 'atlas', 'stepper', 'whatif', 'beam', 'maths', 'positions'] as const
export type View = (typeof VIEWS)[number]
export const PARTS = ['encoder', 'decoder', 'cross'] as const satisfies readonly Part[]
export const AGGREGATES = ['head', 'mean', 'max', 'rollout'] as const satisfies readonly Aggregate[]
export const SCALES = ['linear', 'sqrt', 'log'] as const satisfies readonly Scale[]
export const PALETTES = ['cividis', 'blues', 'greys'] as const satisfies readonly Palette[]
export const THEMES = ['auto', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]
export const SORTS = ['layer', 'confidence', 'entropy', 'distance', 'effect'] as const
export type Sort = (typeof SORTS)[number]
export const LAYOUTS = ['rank', 'tree'] as const
export type Layout = (typeof LAYOUTS)[number]
const HOWS = ['zero', 'mean', 'uniform'] as const

export interface Pin {
  side: 'query' | 'key'
  place: number
}

export interface State {
  view: View
  model: string
  source: string
  /** A translation to be judged instead of a found one; empty where it is to be found. */
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
  prefix: number[]
  changes: Change[]
  pin: Pin | null
  step: number
  /** Positions shown on the page about them. */
  count: number
  /** How the beam is laid out, and whether with what was pruned. */
  layout: Layout
  pruned: boolean
}

/** Where everybody begins. */
export function defaults(): State {
  return {
    view: 'workbench', model: '', source: '', target: '', part: 'cross', layer: 0, heads: [0], aggregate: 'head',
    words: false, specials: true, scale: 'sqrt', threshold: 0, top: 0, palette: 'cividis', theme: 'auto',
    sort: 'layer', beam: 1, prefix: [], changes: [], pin: null, step: 0, count: 128, layout: 'rank', pruned: true,
  }
}

/** The state as the text behind `#`. */
export function written(state: State): string {
  const base = defaults()
  const entries: [string, string][] = []
  const note = (name: string, value: string, usual: string) => value !== usual && entries.push([name, value])
  for (const name of ['view', 'model', 'source', 'target', 'part'] as const) note(name, state[name], base[name])
  // Always there: a link without them opens on the most confident head, which is for those who come without a wish.
  note('layer', String(state.layer + 1), '')
  note('head', state.heads.map((head) => head + 1).join(','), '')
  note('aggregate', state.aggregate, base.aggregate)
  note('words', yes(state.words), yes(base.words))
  note('specials', yes(state.specials), yes(base.specials))
  note('scale', state.scale, base.scale)
  note('threshold', String(state.threshold), '0')
  note('top', String(state.top), '0')
  for (const name of ['palette', 'theme', 'sort'] as const) note(name, state[name], base[name])
  note('beam', String(state.beam), '1')
  note('prefix', state.prefix.join(','), '')
  note('changes', state.changes.map(writtenChange).join(';'), '')
  note('pin', state.pin ? `${state.pin.side}:${state.pin.place}` : '', '')
  note('step', String(state.step), '0')
  note('count', String(state.count), '128')
  note('layout', state.layout, base.layout)
  note('pruned', yes(state.pruned), yes(base.pruned))
  return entries.map(([name, value]) => `${name}=${escape(value)}`).join('&')
}

/** Escapes what a hash cannot hold, and leaves the rest readable. */
function escape(value: string): string {
  return encodeURIComponent(value).replace(/%20/g, '+').replace(/%(2C|3A|3B|2F)/g, (code) => decodeURIComponent(code))
}

function yes(value: boolean): string {
  return value ? 'yes' : 'no'
}

/** The state a hash stands for; what it does not say, or says in a way nobody understands, has its default. */
export function understood(hash: string): State {
  const said = new URLSearchParams(hash.replace(/^#/, ''))
  const state = defaults()
  const one = <T extends string>(name: string, allowed: readonly T[], usual: T): T =>
    allowed.find((each) => each === said.get(name)) ?? usual
  return {
    view: one('view', VIEWS, state.view),
    model: said.get('model') ?? '',
    source: said.get('source') ?? '',
    target: said.get('target') ?? '',
    part: one('part', PARTS, state.part),
    layer: natural(said.get('layer'), 1) - 1,
    heads: naturals(said.get('head') ?? '1').filter((head) => head >= 1).map((head) => head - 1),
    aggregate: one('aggregate', AGGREGATES, state.aggregate),
    words: said.get('words') === 'yes',
    specials: said.get('specials') !== 'no',
    scale: one('scale', SCALES, state.scale),
    threshold: fraction(said.get('threshold')),
    top: natural(said.get('top'), 0),
    palette: one('palette', PALETTES, state.palette),
    theme: one('theme', THEMES, state.theme),
    sort: one('sort', SORTS, state.sort),
    beam: natural(said.get('beam'), 1),
    prefix: naturals(said.get('prefix') ?? ''),
    changes: (said.get('changes') ?? '').split(';').flatMap(understoodChange),
    pin: understoodPin(said.get('pin')),
    step: natural(said.get('step'), 0),
    count: Math.min(512, natural(said.get('count') ?? '128', 1)),
    layout: one('layout', LAYOUTS, state.layout),
    pruned: said.get('pruned') !== 'no',
  }
}

function natural(text: string | null, least: number): number {
  const number = Number(text ?? NaN)
  return Number.isInteger(number) && number >= least ? number : least
}

function naturals(text: string): number[] {
  const words = text.split(',').filter((word) => /^\d+$/.test(word))
  return words.map(Number)
}

function fraction(text: string | null): number {
  const number = Number(text ?? NaN)
  return number >= 0 && number <= 1 ? number : 0
}

function understoodPin(text: string | null): Pin | null {
  const found = /^(query|key):(\d+)$/.exec(text ?? '')
  return found ? { side: found[1] as Pin['side'], place: Number(found[2]) } : null
}

/** A change as text: `ablate:cross.2.1,4:zero`, `keep:encoder.1.3`, `block:2,3`, `row:cross.2.1.5:0.5,0.5`. */
export function writtenChange(change: Change): string {
  switch (change.op) {
    case 'ablate':
      return `ablate:${place(change)}.${change.heads.map((head) => head + 1).join(',')}:${change.how}`
    case 'keep':
      return `keep:${place(change)}.${change.heads.map((head) => head + 1).join(',')}`
    case 'block':
      return `block:${change.tokens.join(',')}`
    case 'row':
      return `row:${place(change)}.${change.head + 1}.${change.query}:${change.weights.map((w) => +w.toFixed(4)).join(',')}`
  }
}

function place({ part, layer }: { part: Part; layer: number }): string {
  return `${part}.${layer + 1}`
}

/** The change a text stands for, as a list of one; nothing where it stands for none. */
export function understoodChange(text: string): Change[] {
  const [op, where = '', rest = ''] = text.split(':')
  if (op === 'block') return naturals(where).length ? [{ op, tokens: naturals(where) }] : []
  const [part, layer, third = '', query] = where.split('.')
  const known = PARTS.find((each) => each === part)
  if (!known || !/^[1-9]\d*$/.test(layer ?? '')) return []
  const at = { part: known, layer: Number(layer) - 1 }
  const heads = naturals(third).map((head) => head - 1)
  if (!heads.length || heads.some((head) => head < 0)) return []
  const how = HOWS.find((each) => each === rest)
  if (op === 'ablate' && how) return [{ op, ...at, heads, how }]
  if (op === 'keep') return [{ op, ...at, heads }]
  if (op === 'row' && /^\d+$/.test(query ?? '')) {
    const weights = rest.split(',').map(Number)
    if (weights.every((weight) => weight >= 0)) return [{ op, ...at, head: heads[0]!, query: Number(query), weights }]
  }
  return []
}
