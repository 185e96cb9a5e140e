import { describe, expect, it } from 'vitest'
import { focusOn, highlighted, tokenWeights, focusText } from '../src/lib/focus'
import { MODELS, MockTransport } from '../src/lib/mock'
import { Client } from '../src/lib/client'
import { Inspection } from '../src/lib/inspection.svelte'
import { label, select, type DisplayOptions } from '../src/lib/selection'

const OPTIONS: DisplayOptions = { aggregate: 'head', words: false, specials: true, threshold: 0, top: 0 }
const LTR = { source: false, target: false }

async function read(text: string, name = MODELS[0]!.name): Promise<Inspection> {
  const inspection = new Inspection()
  await new Promise<void>((done) => {
    const client = new Client(new MockTransport(), { connection: () => undefined, training: () => undefined })
    const model = MODELS.find((candidate) => candidate.name === name)!
    client.ask('main', name, { kind: 'read', [model.input]: text }, {
      frame: (frame) => {
        inspection.add(frame)
        if (inspection.done) done()
      },
    })
  })
  return inspection
}

describe('a selection', () => {
  it('has the target as rows and the source as columns in cross-attention', async () => {
    const inspection = await read('I saw a cat')
    const selection = select(inspection, { part: 'cross', layer: 0, heads: [0] }, OPTIONS, LTR)!
    expect(selection.queries.side).toBe('target')
    expect(selection.keys.labels).toEqual(['I', 'saw', 'a', 'cat', '</s>'])
    expect(selection.full.rows).toBe(inspection.target.length)
  })

  it('starts the keys of the decoder with the start symbol', async () => {
    const selection = select(await read('I saw'), { part: 'decoder', layer: 0, heads: [0] }, OPTIONS, LTR)!
    expect(selection.keys.labels).toEqual(['<s>', 'I', 'was'])
  })

  it('of a language model has the prompt and its continuation as queries and keys', async () => {
    const inspection = await read('I saw a cat', 'mock-lm')
    const selection = select(inspection, { part: 'decoder', layer: 1, heads: [3] }, OPTIONS, LTR)!
    expect(inspection.prompt).toBe(4)
    expect(selection.queries.labels).toEqual(['I', 'saw', 'a', 'cat', 'cat', 'a', 'saw', 'I', '</s>'])
    expect(selection.keys.labels).toEqual(['<s>', ...selection.queries.labels.slice(0, -1)])
  })

  it('is null while its layer is missing', () => {
    expect(select(new Inspection(), { part: 'cross', layer: 0, heads: [0] }, OPTIONS, LTR)).toBeNull()
  })

  it('by words and without special tokens has rows that sum to one', async () => {
    const inspection = await read('I noticed something')
    const selection = select(inspection, { part: 'cross', layer: 1, heads: [2] }, { ...OPTIONS, words: true, specials: false }, LTR)!
    expect(selection.keys.labels).toEqual(['I', 'noticed', 'something'])
    for (let row = 0; row < 3; row++) {
      expect(selection.full.data.slice(row * 3, row * 3 + 3).reduce((a, b) => a + b)).toBeCloseTo(1, 1)
    }
  })

  it('joins the tokens of Arabic words, and leaves whole words alone', async () => {
    const inspection = await read('I can go alone', 'mock-ar')
    const at = { part: 'cross' as const, layer: 0, heads: [0] }
    const rtl = { source: false, target: true }
    expect(select(inspection, at, OPTIONS, rtl)!.queries.labels.slice(0, 2)).toEqual(['أست\u200d', '\u200dطيع'])
    expect(select(inspection, at, { ...OPTIONS, words: true }, rtl)!.queries.labels[0]).toBe('أستطيع')
  })

  it('has a label for tokens without letters', () => {
    expect(label({ piece: '▁', text: '' })).toBe('␣')
    expect(label({ piece: '</s>', text: '' })).toBe('</s>')
  })
})

describe('the focus', () => {
  it('on a target token is a query of cross-attention, on a source token a key', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, OPTIONS, LTR)!
    expect(focusOn(selection, 'target', 2)).toEqual({ query: 2, key: null })
    expect(focusOn(selection, 'source', 1)).toEqual({ query: null, key: 1 })
  })

  it('on a target token shades the source by its weights', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, OPTIONS, LTR)!
    const weights = tokenWeights(selection, { query: 1, key: null }, 'source', 5)!
    expect(Array.from(weights)).toEqual(Array.from(selection.full.data.slice(5, 10)))
    expect(tokenWeights(selection, { query: 1, key: null }, 'target', 5)).toBeNull()
    expect([...highlighted(selection, { query: 1, key: null }, 'target')]).toEqual([1])
  })

  it('on a key of the decoder highlights the token that was read, one position before', async () => {
    const selection = select(await read('I saw a cat'), { part: 'decoder', layer: 0, heads: [0] }, OPTIONS, LTR)!
    expect([...highlighted(selection, { query: null, key: 3 }, 'target')]).toEqual([2])
  })

  it('is described in words, with exact numbers if they are known', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, OPTIONS, LTR)!
    const exact = () => Float32Array.from([0.1, 0.6213, 0.2, 0.05, 0.0287])
    expect(focusText(selection, { query: 1, key: 1 }, exact)).toBe("query 'was', key 'saw', 0.621, rank 1")
    expect(focusText(selection, { query: 1, key: null }, exact)).toBe("query 'was', attends to 'saw' 0.62, 'a' 0.20, 'I' 0.10")
    expect(focusText(selection, null)).toBe('')
  })
})
