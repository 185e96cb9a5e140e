import { describe, expect, it } from 'vitest'
import { focusOn, lit, shades, spoken } from '../src/lib/focus'
import { MODELS, MockTransport } from '../src/lib/mock'
import { Client } from '../src/lib/client'
import { Reading } from '../src/lib/reading.svelte'
import { label, select, type Wish } from '../src/lib/selection'

const WISH: Wish = { aggregate: 'head', words: false, specials: true, threshold: 0, top: 0 }
const LTR = { source: false, target: false }

async function read(source: string, model = MODELS[0]!.name): Promise<Reading> {
  const reading = new Reading()
  await new Promise<void>((done) => {
    const client = new Client(new MockTransport(), { line: () => undefined, making: () => undefined })
    client.ask('main', model, { kind: 'read', source }, {
      frame: (frame) => {
        reading.take(frame)
        if (reading.done) done()
      },
    })
  })
  return reading
}

describe('a selection', () => {
  it('has the target as rows and the source as columns in cross-attention', async () => {
    const reading = await read('I saw a cat')
    const selection = select(reading, { part: 'cross', layer: 0, heads: [0] }, WISH, LTR)!
    expect(selection.queries.side).toBe('target')
    expect(selection.keys.labels).toEqual(['I', 'saw', 'a', 'cat', '</s>'])
    expect(selection.full.rows).toBe(reading.target.length)
  })

  it('begins the keys of the decoder with the begin symbol', async () => {
    const selection = select(await read('I saw'), { part: 'decoder', layer: 0, heads: [0] }, WISH, LTR)!
    expect(selection.keys.labels).toEqual(['<s>', 'I', 'was'])
  })

  it('is nothing while its layer is still to come', () => {
    expect(select(new Reading(), { part: 'cross', layer: 0, heads: [0] }, WISH, LTR)).toBeNull()
  })

  it('is smaller by words and without special tokens, and its rows still sum to one', async () => {
    const reading = await read('I noticed something')
    const selection = select(reading, { part: 'cross', layer: 1, heads: [2] }, { ...WISH, words: true, specials: false }, LTR)!
    expect(selection.keys.labels).toEqual(['I', 'noticed', 'something'])
    for (let row = 0; row < 3; row++) {
      expect(selection.full.data.slice(row * 3, row * 3 + 3).reduce((a, b) => a + b)).toBeCloseTo(1, 1)
    }
  })

  it('joins the pieces of Arabic words, and leaves whole words alone', async () => {
    const reading = await read('I can go alone', 'made-up-ar')
    const at = { part: 'cross' as const, layer: 0, heads: [0] }
    const rtl = { source: false, target: true }
    expect(select(reading, at, WISH, rtl)!.queries.labels.slice(0, 2)).toEqual(['أست\u200d', '\u200dطيع'])
    expect(select(reading, at, { ...WISH, words: true }, rtl)!.queries.labels[0]).toBe('أستطيع')
  })

  it('writes something even for tokens without letters', () => {
    expect(label({ piece: '▁', text: '' })).toBe('␣')
    expect(label({ piece: '</s>', text: '' })).toBe('</s>')
  })
})

describe('a look', () => {
  it('at a target token is a query of cross-attention, at a source token a key', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, WISH, LTR)!
    expect(focusOn(selection, 'target', 2)).toEqual({ query: 2, key: null })
    expect(focusOn(selection, 'source', 1)).toEqual({ query: null, key: 1 })
  })

  it('at a target token shades the source by its row', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, WISH, LTR)!
    const shading = shades(selection, { query: 1, key: null }, 'source', 5)!
    expect(Array.from(shading)).toEqual(Array.from(selection.full.data.slice(5, 10)))
    expect(shades(selection, { query: 1, key: null }, 'target', 5)).toBeNull()
    expect([...lit(selection, { query: 1, key: null }, 'target')]).toEqual([1])
  })

  it('in the decoder lights the token that was read, one place before', async () => {
    const selection = select(await read('I saw a cat'), { part: 'decoder', layer: 0, heads: [0] }, WISH, LTR)!
    expect([...lit(selection, { query: null, key: 3 }, 'target')]).toEqual([2])
  })

  it('is said in words, with exact numbers where they are known', async () => {
    const selection = select(await read('I saw a cat'), { part: 'cross', layer: 0, heads: [0] }, WISH, LTR)!
    const exact = () => Float32Array.from([0.1, 0.6213, 0.2, 0.05, 0.0287])
    expect(spoken(selection, { query: 1, key: 1 }, exact)).toBe("query 'was', key 'saw', 0.621, rank 1")
    expect(spoken(selection, { query: 1, key: null }, exact)).toBe("query 'was', looks at 'saw' 0.62, 'a' 0.20, 'I' 0.10")
    expect(spoken(selection, null)).toBe('')
  })
})
