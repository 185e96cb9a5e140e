import { describe, expect, it } from 'vitest'
import { addChange, describeChange, toggleErased } from '../src/lib/changes'
import { describeFacts, largestWeight, ranked, signed, signedSmall, small, unreadEnd, wordsBySentence } from '../src/lib/document'
import type { Change, WeightedSpan } from '../src/lib/messages'
import { isRightToLeft } from '../src/lib/script'

const TEXT = 'It rained.  We left (early)!\n\nNot read'
const SENTENCES: WeightedSpan[] = [[0, 10, 0.25], [12, 28, 0.75]]
const WORDS: WeightedSpan[] = [[0, 2, 0.05], [3, 10, 0.2], [12, 14, null], [15, 19, 0.5], [20, 28, 0.25]]

describe('a classified text', () => {
  it('is split into the words of its sentences', () => {
    const rows = wordsBySentence(TEXT, { sentences: SENTENCES, words: WORDS })
    expect(rows.map((words) => words.map(({ text }) => text))).toEqual([['It', 'rained.'], ['We', 'left', '(early)!']])
    expect(rows[1]!.map(({ number, before }) => [number, before])).toEqual([[2, ''], [3, ' '], [4, ' ']])
  })

  it('shows characters between words that the model does not read', () => {
    const rows = wordsBySentence('a ~ b', { sentences: [[0, 5, 1]], words: [[0, 1, 0.5], [4, 5, 0.5]] })
    expect(rows[0]!.map(({ before }) => before)).toEqual(['', ' ~ '])
  })

  it('may have an end that is not read', () => {
    expect(unreadEnd(TEXT, WORDS)).toBe('Not read')
    expect(unreadEnd('It rained.', WORDS.slice(0, 2))).toBe('')
  })

  it('ranks by absolute value and leaves out what has none', () => {
    expect(ranked(WORDS.map(([, , weight]) => weight))).toEqual([3, 4, 1, 0])
    expect(ranked([0.1, undefined, -0.4, null])).toEqual([2, 0])
    expect(largestWeight(WORDS)).toBe(0.5)
    expect(largestWeight([[0, 2, null]])).toBe(0)
  })

  it('formats changes with a sign, and small ones not as zero', () => {
    expect([signed(0.123), signed(-0.5), signed(0.001), signed(-0.001), signed(0)]).toEqual(['+0.12', '−0.50', '0.00', '0.00', '0.00'])
    expect([signedSmall(0.5), signedSmall(-0.00002), signedSmall(0)]).toEqual(['+0.500', '−2.0e−5', '0.000'])
    expect([small(0.4429), small(0.0004)]).toEqual(['0.443', '4.0e−4'])
  })

  it('describes the weight of a word beside the effect of erasing it', () => {
    const facts = { level: 'word', number: 3, text: 'left', weight: 0.5, rank: 1, count: 4, erased: false, effect: -0.25, label: 'bad' } as const
    expect(describeFacts(facts)).toBe("word 'left', weight 0.500, rank 1 of 4; without it, p(bad) changes by −0.250")
    expect(describeFacts({ ...facts, effect: undefined })).toBe("word 'left', weight 0.500, rank 1 of 4")
    expect(describeFacts({ ...facts, weight: null })).toBe("word 'left'; without it, p(bad) changes by −0.250")
    expect(describeFacts({ ...facts, level: 'sentence', erased: true })).toBe('sentence 4, erased')
  })
})

describe('erasing', () => {
  const erased = (level: 'word' | 'sentence', ...numbers: number[]): Change => ({ op: 'erase', level, numbers })

  it('is done and undone by the same action', () => {
    const once = toggleErased([], 'word', 3)
    expect(once).toEqual([erased('word', 3)])
    const more = toggleErased(toggleErased(once, 'word', 1), 'sentence', 1)
    expect(more).toEqual([erased('word', 1, 3), erased('sentence', 1)])
    expect(toggleErased(toggleErased(more, 'word', 3), 'sentence', 1)).toEqual([erased('word', 1)])
    expect(toggleErased(once, 'word', 3)).toEqual([])
  })

  it('is described by words, or by the numbers of sentences', () => {
    expect(describeChange(erased('word', 1, 0), [], true, ['It', 'rained.'])).toBe("words 'rained.', 'It' erased")
    expect(describeChange(erased('sentence', 1), [])).toBe('sentence 2 erased')
    expect(addChange([erased('word', 2)], erased('sentence', 0))).toHaveLength(2)
  })
})

describe('the direction of a text', () => {
  it('is that of its first letter', () => {
    expect(isRightToLeft('«القطة» sat')).toBe(true)
    expect(isRightToLeft('12 cats القطة')).toBe(false)
    expect(isRightToLeft('!?')).toBe(false)
  })
})
