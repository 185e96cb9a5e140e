import { describe, expect, it } from 'vitest'
import { isolated, joined, joining, JOINER, shaped } from '../src/lib/script'

describe('Arabic letters', () => {
  it.each([['ب', 'both'], ['ا', 'before'], ['د', 'before'], ['ء', 'none'], ['َ', 'mark'], ['ة', 'before'], ['ى', 'both'], ['ک', 'both'], ['a', 'none']] as const)(
    '%s joins: %s', (letter, how) => {
      expect(joining(letter.codePointAt(0)!)).toBe(how)
    },
  )

  it('join across tokens only if both letters join', () => {
    expect(joined('الطا', 'لب')).toBe(false)
    expect(joined('أست', 'طيع')).toBe(true)
    expect(joined('كت', 'اب')).toBe(true)
    expect(joined('سماء', 'ب')).toBe(false)
    expect(joined('cat', 'ب')).toBe(false)
  })

  it('join across a combining mark', () => {
    expect(joined('بَ', 'ت')).toBe(true)
    expect(joined('دَ', 'ت')).toBe(false)
  })
})

describe('tokens', () => {
  it('get a joiner on both sides inside a word', () => {
    expect(shaped(['أست', 'طيع'], [false, true])).toEqual([`أست${JOINER}`, `${JOINER}طيع`])
  })

  it('get none between words, nor after a letter that does not join the next', () => {
    expect(shaped(['أست', 'طيع'], [false, false])).toEqual(['أست', 'طيع'])
    expect(shaped(['وحيد', 'اً'], [false, true])).toEqual(['وحيد', 'اً'])
  })

  it('of other scripts stay unchanged', () => {
    expect(shaped(['Kat', 'ze'], [false, true])).toEqual(['Kat', 'ze'])
  })
})

describe('a right-to-left text', () => {
  it('is isolated from the text around it', () => {
    expect(isolated('cat')).toBe('cat')
    expect(isolated('لم')).toBe('\u2068لم\u2069')
  })
})
