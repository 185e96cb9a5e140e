import { describe, expect, it } from 'vitest'
import { diffTokens } from '../src/lib/diff'

const operations = (before: string, after: string) =>
  diffTokens(before.split(' ').filter(Boolean), after.split(' ').filter(Boolean)).map((step) => step.op)

describe('the difference of two sequences', () => {
  it('of equal sequences is empty', () => {
    expect(operations('das Tier war müde', 'das Tier war müde')).toEqual(['same', 'same', 'same', 'same'])
  })

  it('contains a replaced token', () => {
    expect(operations('weil es müde war', 'weil sie müde war')).toEqual(['same', 'replaced', 'same', 'same'])
  })

  it('contains removed and added tokens', () => {
    expect(operations('a b c', 'a c')).toEqual(['same', 'removed', 'same'])
    expect(operations('a c', 'a b c')).toEqual(['same', 'added', 'same'])
    expect(operations('', 'a')).toEqual(['added'])
    expect(operations('a', '')).toEqual(['removed'])
  })

  it('contains every position of both sides once, in order', () => {
    const steps = diffTokens([1, 2, 3, 4, 5], [2, 3, 9, 5, 6])
    expect(steps.flatMap((step) => ('before' in step ? [step.before] : []))).toEqual([0, 1, 2, 3, 4])
    expect(steps.flatMap((step) => ('after' in step ? [step.after] : []))).toEqual([0, 1, 2, 3, 4])
  })
})
