import { describe, expect, it } from 'vitest'
import { changesBetween } from '../src/lib/difference'

const told = (before: string, after: string) =>
  changesBetween(before.split(' ').filter(Boolean), after.split(' ').filter(Boolean)).map((step) => step.op)

describe('the difference of two translations', () => {
  it('is none where they are equal', () => {
    expect(told('das Tier war müde', 'das Tier war müde')).toEqual(['same', 'same', 'same', 'same'])
  })

  it('names a token put in the place of another', () => {
    expect(told('weil es müde war', 'weil sie müde war')).toEqual(['same', 'changed', 'same', 'same'])
  })

  it('names what is gone and what has come', () => {
    expect(told('a b c', 'a c')).toEqual(['same', 'gone', 'same'])
    expect(told('a c', 'a b c')).toEqual(['same', 'come', 'same'])
    expect(told('', 'a')).toEqual(['come'])
    expect(told('a', '')).toEqual(['gone'])
  })

  it('has every place of both sides once, in order', () => {
    const steps = changesBetween([1, 2, 3, 4, 5], [2, 3, 9, 5, 6])
    expect(steps.flatMap((step) => ('before' in step ? [step.before] : []))).toEqual([0, 1, 2, 3, 4])
    expect(steps.flatMap((step) => ('after' in step ? [step.after] : []))).toEqual([0, 1, 2, 3, 4])
  })
})
