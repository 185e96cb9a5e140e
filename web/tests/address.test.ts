import { describe, expect, it } from 'vitest'
import { defaults, formatState, parseState, type State } from '../src/lib/address'
import { isHistoryStep } from '../src/lib/history.svelte'

const FULL: State = {
  view: 'whatif', model: 'demo-de', inputs: { source: 'Is 50 % & more = “enough”? 你好 #1', text: 'Once upon', history: 'Hi.\nHello; who is it?\nمرحبا' }, target: 'كتاب', part: 'encoder', layer: 2, heads: [0, 3],
  aggregate: 'rollout', words: true, specials: false, scale: 'log', threshold: 0.05, top: 3, palette: 'blues', theme: 'dark',
  sort: 'entropy', beam: 5, prefix: [12, 7], pin: { side: 'key', place: 4 }, step: 2, count: 64, layout: 'tree', pruned: false, label: 'rec.autos',
  turns: 2, seed: 7, temperature: 0.7,
  changes: [
    { op: 'ablate', part: 'cross', layer: 1, heads: [0, 2], how: 'mean' },
    { op: 'keep', part: 'decoder', layer: 0, heads: [1] },
    { op: 'block', tokens: [0, 5] },
    { op: 'row', part: 'cross', layer: 1, head: 2, query: 4, weights: [0.25, 0.75] },
    { op: 'erase', level: 'sentence', numbers: [0] },
    { op: 'erase', level: 'word', numbers: [3, 4] },
    { op: 'edit', number: 2, text: '50 %: a; b ✓ & c%3B' },
    { op: 'drop', numbers: [0, 1] },
  ],
}

describe('the URL fragment', () => {
  it('of the initial state contains only layer and head', () => {
    expect(formatState(defaults())).toBe('layer=1&head=1')
    expect(parseState('')).toEqual(defaults())
  })

  it('contains the whole state', () => {
    expect(parseState(`#${formatState(FULL)}`)).toEqual(FULL)
  })

  it('counts layers and heads from 1', () => {
    expect(parseState('#layer=2&head=3')).toMatchObject({ layer: 1, heads: [2] })
    expect(formatState({ ...defaults(), layer: 1, heads: [2] })).toBe('layer=2&head=3')
  })

  it('is readable', () => {
    const state = { ...defaults(), view: 'atlas' as const, inputs: { source: 'I saw a cat', text: '', history: '' }, changes: FULL.changes.slice(0, 1) }
    expect(formatState(state)).toBe('view=atlas&source=I+saw+a+cat&layer=1&head=1&changes=ablate:cross.2.1,3:mean')
  })

  it('ignores invalid values', () => {
    const state = parseState('#view=kitchen&layer=-3&head=x,0&threshold=7&beam=none&pin=here&changes=ablate:cross;keep:nowhere.1.1;row:cross.1.1;x;drop:0;drop:;edit:1:;edit:0:a&seed=-1&temperature=0&turns=x')
    expect(state).toEqual({ ...defaults(), heads: [] })
  })
})

describe('a history entry', () => {
  it('is another view or another change, but not another character', () => {
    expect(isHistoryStep(defaults(), { ...defaults(), view: 'beam' })).toBe(true)
    expect(isHistoryStep(defaults(), { ...defaults(), changes: [{ op: 'block', tokens: [1] }] })).toBe(true)
    expect(isHistoryStep(defaults(), { ...defaults(), inputs: { source: 'a', text: '', history: '' }, threshold: 0.2, pin: { side: 'query', place: 1 } })).toBe(false)
  })
})
