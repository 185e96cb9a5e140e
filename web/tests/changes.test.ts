import { describe, expect, it } from 'vitest'
import { added, described, unblocked } from '../src/lib/changes'
import { cut } from '../src/lib/mock'
import { Undo } from '../src/lib/undo'

const SOURCE = cut('the cat')

describe('changes', () => {
  it('are said as people would, counting from one', () => {
    expect(described({ op: 'ablate', part: 'cross', layer: 1, heads: [0, 2], how: 'zero' }, SOURCE)).toBe('cross layer 2, heads 1, 3 silenced')
    expect(described({ op: 'block', tokens: [1] }, SOURCE)).toBe("'cat' blocked")
    expect(described({ op: 'keep', part: 'encoder', layer: 0, heads: [3] }, SOURCE)).toBe('encoder self layer 1: only head 4 kept')
  })

  it('about the same place are put together', () => {
    const first = { op: 'ablate', part: 'cross', layer: 0, heads: [1], how: 'zero' } as const
    const both = added([{ ...first, heads: [1] }], { ...first, heads: [0] })
    expect(both).toEqual([{ ...first, heads: [0, 1] }])
    expect(added(both, { ...first, heads: [2], how: 'mean' })).toHaveLength(2)
    expect(added([{ op: 'block', tokens: [3] }], { op: 'block', tokens: [1] })).toEqual([{ op: 'block', tokens: [1, 3] }])
  })

  it('let a blocked token go again', () => {
    expect(unblocked([{ op: 'block', tokens: [1, 3] }], 1)).toEqual([{ op: 'block', tokens: [3] }])
    expect(unblocked([{ op: 'block', tokens: [3] }], 3)).toEqual([])
  })
})

describe('undo', () => {
  it('goes back and forth', () => {
    const undo = new Undo<string>()
    undo.leave('a')
    undo.leave('b')
    expect(undo.undo('c')).toBe('b')
    expect(undo.undo('b')).toBe('a')
    expect(undo.undo('a')).toBeUndefined()
    expect(undo.redo('a')).toBe('b')
    expect(undo.redo('b')).toBe('c')
    expect(undo.redo('c')).toBeUndefined()
  })

  it('forgets what was undone when something else is done', () => {
    const undo = new Undo<string>()
    undo.leave('a')
    undo.undo('b')
    undo.leave('a')
    expect(undo.canRedo).toBe(false)
  })
})
