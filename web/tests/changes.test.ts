import { describe, expect, it } from 'vitest'
import { addChange, describeChange, unblockToken } from '../src/lib/changes'
import { cut } from '../src/lib/mock'
import { Undo } from '../src/lib/undo'

const SOURCE = cut('the cat')

describe('changes', () => {
  it('are described in words that count from one', () => {
    expect(describeChange({ op: 'ablate', part: 'cross', layer: 1, heads: [0, 2], how: 'zero' }, SOURCE)).toBe('cross layer 2, heads 1, 3 set to zero')
    expect(describeChange({ op: 'block', tokens: [1] }, SOURCE)).toBe("'cat' blocked")
    expect(describeChange({ op: 'keep', part: 'encoder', layer: 0, heads: [3] }, SOURCE)).toBe('encoder self layer 1: only head 4 kept')
  })

  it('of the same layer are merged', () => {
    const first = { op: 'ablate', part: 'cross', layer: 0, heads: [1], how: 'zero' } as const
    const merged = addChange([{ ...first, heads: [1] }], { ...first, heads: [0] })
    expect(merged).toEqual([{ ...first, heads: [0, 1] }])
    expect(addChange(merged, { ...first, heads: [2], how: 'mean' })).toHaveLength(2)
    expect(addChange([{ op: 'block', tokens: [3] }], { op: 'block', tokens: [1] })).toEqual([{ op: 'block', tokens: [1, 3] }])
  })

  it('unblock a token', () => {
    expect(unblockToken([{ op: 'block', tokens: [1, 3] }], 1)).toEqual([{ op: 'block', tokens: [3] }])
    expect(unblockToken([{ op: 'block', tokens: [3] }], 3)).toEqual([])
  })
})

describe('undo', () => {
  it('goes back and forward', () => {
    const undo = new Undo<string>()
    undo.save('a')
    undo.save('b')
    expect(undo.undo('c')).toBe('b')
    expect(undo.undo('b')).toBe('a')
    expect(undo.undo('a')).toBeUndefined()
    expect(undo.redo('a')).toBe('b')
    expect(undo.redo('b')).toBe('c')
    expect(undo.redo('c')).toBeUndefined()
  })

  it('forgets undone states after a new change', () => {
    const undo = new Undo<string>()
    undo.save('a')
    undo.undo('b')
    undo.save('a')
    expect(undo.canRedo).toBe(false)
  })
})
