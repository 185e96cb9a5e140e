import { describe, expect, it } from 'vitest'
import { defaults, understood, written, type State } from '../src/lib/address'
import { isStep } from '../src/lib/history.svelte'

const FULL: State = {
  view: 'whatif', model: 'demo-de', source: 'Is 50 % & more = “enough”? 你好 #1', target: 'كتاب', part: 'encoder', layer: 2, heads: [0, 3],
  aggregate: 'rollout', words: true, specials: false, scale: 'log', threshold: 0.05, top: 3, palette: 'blues', theme: 'dark',
  sort: 'entropy', beam: 5, prefix: [12, 7], pin: { side: 'key', place: 4 }, step: 2, count: 64, layout: 'tree', pruned: false,
  changes: [
    { op: 'ablate', part: 'cross', layer: 1, heads: [0, 2], how: 'mean' },
    { op: 'keep', part: 'decoder', layer: 0, heads: [1] },
    { op: 'block', tokens: [0, 5] },
    { op: 'row', part: 'cross', layer: 1, head: 2, query: 4, weights: [0.25, 0.75] },
  ],
}

describe('the address', () => {
  it('names only layer and head where everything is as at the beginning', () => {
    expect(written(defaults())).toBe('layer=1&head=1')
    expect(understood('')).toEqual(defaults())
  })

  it('holds the whole state', () => {
    expect(understood(`#${written(FULL)}`)).toEqual(FULL)
  })

  it('counts layers and heads from 1, as people do', () => {
    expect(understood('#layer=2&head=3')).toMatchObject({ layer: 1, heads: [2] })
    expect(written({ ...defaults(), layer: 1, heads: [2] })).toBe('layer=2&head=3')
  })

  it('can be read by people', () => {
    const state = { ...defaults(), view: 'atlas' as const, source: 'I saw a cat', changes: FULL.changes.slice(0, 1) }
    expect(written(state)).toBe('view=atlas&source=I+saw+a+cat&layer=1&head=1&changes=ablate:cross.2.1,3:mean')
  })

  it('survives what nobody understands', () => {
    const state = understood('#view=kitchen&layer=-3&head=x,0&threshold=7&beam=none&pin=here&changes=ablate:cross;keep:nowhere.1.1;row:cross.1.1;x')
    expect(state).toEqual({ ...defaults(), heads: [] })
  })
})

describe('a step in the history', () => {
  it('is another view or another change, not another letter', () => {
    expect(isStep(defaults(), { ...defaults(), view: 'beam' })).toBe(true)
    expect(isStep(defaults(), { ...defaults(), changes: [{ op: 'block', tokens: [1] }] })).toBe(true)
    expect(isStep(defaults(), { ...defaults(), source: 'a', threshold: 0.2, pin: { side: 'query', place: 1 } })).toBe(false)
  })
})
