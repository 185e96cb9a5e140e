import { describe, expect, it } from 'vitest'
import { addChange, describeChange } from '../src/lib/changes'
import {
  changesWithin, compareReplies, describeDialogueFacts, describeReplyWord, editTurn, effectiveTurns, isUsers, sumOver, toggleDropped, turnsOf, weightsAt, wordsOf,
} from '../src/lib/conversation'
import type { Change } from '../src/lib/messages'

const TURNS = ['My name is Anna.', 'Hello Anna!', 'Who am I?']

describe('a conversation', () => {
  it('has a turn on each line, and the last one is the user’s', () => {
    expect(turnsOf(TURNS.join('\n'))).toEqual(TURNS)
    expect(turnsOf('')).toEqual([])
    expect([0, 1, 2].map((turn) => isUsers(turn, 3))).toEqual([true, false, true])
    expect([0, 1].map((turn) => isUsers(turn, 2))).toEqual([false, true])
  })

  it('is split into words as the model says', () => {
    expect(wordsOf('Hello Anna!', [[0, 5], [6, 11]])).toEqual([{ number: 0, text: 'Hello', before: '' }, { number: 1, text: 'Anna!', before: ' ' }])
  })

  it('has the weights of one word of the reply, or their mean', () => {
    const matrix = { rows: 2, columns: 3, data: Float32Array.of(1, 0, 0, 0, 0.5, 0.5) }
    expect([...weightsAt(matrix, 1)]).toEqual([0, 0.5, 0.5])
    expect([...weightsAt(matrix, null)]).toEqual([0.5, 0.25, 0.25])
    expect([...weightsAt({ rows: 0, columns: 2, data: new Float32Array(0) }, null)]).toEqual([0, 0])
  })

  it('has the log-probability of a word as the sum of its tokens, and of a reply with its end', () => {
    const tokens = [0, 1, 1, null].map((word) => ({ piece: '', text: '', word }))
    const values = Float32Array.of(-1, -2, -4, -8)
    expect([sumOver(values, tokens, 0), sumOver(values, tokens, 1), sumOver(values, tokens, null)]).toEqual([-1, -6, -15])
  })
})

describe('a turn', () => {
  it('is dropped and put back', () => {
    const once = toggleDropped([], 2)
    const twice = toggleDropped(once, 0)
    expect(twice).toEqual([{ op: 'drop', numbers: [0, 2] }])
    expect(toggleDropped(toggleDropped(twice, 0), 2)).toEqual([])
    expect(effectiveTurns(TURNS, twice)).toEqual(['', 'Hello Anna!', ''])
  })

  it('is edited, and its own text takes the change back', () => {
    const edited = editTurn([{ op: 'drop', numbers: [1] }], 0, '  My name\n is Ben. ', TURNS[0]!)
    expect(edited).toEqual([{ op: 'edit', number: 0, text: 'My name is Ben.' }, { op: 'drop', numbers: [1] }])
    expect(effectiveTurns(TURNS, edited)).toEqual(['My name is Ben.', '', 'Who am I?'])
    expect(editTurn(edited, 0, TURNS[0]!, TURNS[0]!)).toEqual([{ op: 'drop', numbers: [1] }])
    expect(editTurn(edited, 0, ' ', TURNS[0]!)).toEqual([{ op: 'drop', numbers: [1] }])
    expect(effectiveTurns(TURNS, toggleDropped(editTurn([], 1, 'Hi!', TURNS[1]!), 1))[1]).toBe('')
  })

  it('keeps its changes only while it is part of the conversation', () => {
    const changes: Change[] = [{ op: 'edit', number: 2, text: 'a' }, { op: 'edit', number: 0, text: 'b' }, { op: 'drop', numbers: [1, 3] }]
    expect(changesWithin(changes, 2)).toEqual([{ op: 'edit', number: 0, text: 'b' }, { op: 'drop', numbers: [1] }])
    expect(changesWithin(changes, 0)).toEqual([])
  })

  it('has changes that are described in words', () => {
    expect(describeChange({ op: 'drop', numbers: [0, 2] }, [])).toBe('turns 1, 3 dropped')
    expect(describeChange({ op: 'edit', number: 1, text: 'a' }, [])).toBe('turn 2 edited')
    expect(addChange([{ op: 'edit', number: 1, text: 'a' }], { op: 'edit', number: 1, text: 'b' })).toEqual([{ op: 'edit', number: 1, text: 'b' }])
  })
})

describe('a reply', () => {
  const shown = (before: string, after: string) =>
    compareReplies(before.split(' '), after.split(' ')).map(({ number, text, isNew }) => (number === null ? `-${text}` : isNew ? `+${text}` : text)).join(' ')

  it('stands beside an earlier one, whose words come first', () => {
    expect(shown('Your name is Anna.', 'Your name is Ben.')).toBe('Your name is -Anna. +Ben.')
    expect(shown('Your name is Anna.', 'I do not know.')).toBe('-Your -name -is -Anna. +I +do +not +know.')
    expect(shown('Yes', 'Yes it is')).toBe('Yes +it +is')
    expect(shown('a b c', 'b c d')).toBe('-a b c +d')
  })

  it('numbers its words as without the comparison', () => {
    expect(compareReplies(['a', 'x', 'b'], ['a', 'b', 'c']).flatMap(({ number }) => number ?? [])).toEqual([0, 1, 2])
  })
})

describe('the focus', () => {
  const facts = { turn: 0, text: 'Anna.', weight: 0.5, rank: 1, count: 9, absent: '', effect: -2.5, of: 'reply' } as const

  it('describes the weight of a turn or word beside its effect', () => {
    expect(describeDialogueFacts(facts)).toBe("turn 1, word 'Anna.', weight 0.500, rank 1 of 9; without it, log p(reply) changes by −2.500")
    expect(describeDialogueFacts({ ...facts, text: undefined, effect: undefined })).toBe('turn 1, weight 0.500, rank 1 of 9')
    expect(describeDialogueFacts({ ...facts, weight: null, of: "'Anna'" })).toBe("turn 1, word 'Anna.'; without it, log p('Anna') changes by −2.500")
    expect(describeDialogueFacts({ ...facts, text: undefined, absent: 'not read' })).toBe('turn 1, not read')
  })

  it('describes where a word of the reply comes from', () => {
    const turns = [{ turn: 0, weight: 0.25, effect: -3 }, { turn: 2, weight: 0.75, effect: 0.5 }]
    expect(describeReplyWord('Anna', Math.log(0.5), turns)).toBe("'Anna', p 0.500; attends to turn 3 0.750, turn 1 0.250; without turn 3, its log p changes by +0.500")
    expect(describeReplyWord('Anna', 0, turns.map((turn) => ({ ...turn, weight: null })))).toBe("'Anna', p 1.000; without turn 1, its log p changes by −3.000")
    expect(describeReplyWord('Anna', 0, [])).toBe("'Anna', p 1.000")
  })
})
