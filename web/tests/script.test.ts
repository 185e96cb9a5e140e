import { describe, expect, it } from 'vitest'
import { isolated, joined, joining, JOINER, shaped } from '../src/lib/script'

describe('Arabic letters', () => {
  it.each([['ب', 'both'], ['ا', 'before'], ['د', 'before'], ['ء', 'none'], ['َ', 'mark'], ['ة', 'before'], ['ى', 'both'], ['ک', 'both'], ['a', 'none']] as const)(
    '%s joins: %s', (letter, how) => {
      expect(joining(letter.codePointAt(0)!)).toBe(how)
    },
  )

  it('join over a cut only where both would have joined', () => {
    expect(joined('الطا', 'لب')).toBe(false)
    expect(joined('أست', 'طيع')).toBe(true)
    expect(joined('كت', 'اب')).toBe(true)
    expect(joined('سماء', 'ب')).toBe(false)
    expect(joined('cat', 'ب')).toBe(false)
  })

  it('join over a mark that stands upon the last letter', () => {
    expect(joined('بَ', 'ت')).toBe(true)
    expect(joined('دَ', 'ت')).toBe(false)
  })
})

describe('pieces', () => {
  it('get a joiner on both sides of a cut inside a word', () => {
    expect(shaped(['أست', 'طيع'], [false, true])).toEqual([`أست${JOINER}`, `${JOINER}طيع`])
  })

  it('get none between words, nor after a letter that does not join ahead', () => {
    expect(shaped(['أست', 'طيع'], [false, false])).toEqual(['أست', 'طيع'])
    expect(shaped(['وحيد', 'اً'], [false, true])).toEqual(['وحيد', 'اً'])
  })

  it('keep what is not Arabic as it is', () => {
    expect(shaped(['Kat', 'ze'], [false, true])).toEqual(['Kat', 'ze'])
  })
})

describe('a text inside a sentence', () => {
  it('keeps its direction to itself where it runs the other way', () => {
    expect(isolated('cat')).toBe('cat')
    expect(isolated('لم')).toBe('\u2068لم\u2069')
  })
})
