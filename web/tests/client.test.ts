import { describe, expect, it } from 'vitest'
import { Client } from '../src/lib/client'
import { writeFrame } from '../src/lib/mock'
import type { Numbered } from '../src/lib/messages'
import { matching, type Line, type Listener, type Transport } from '../src/lib/transport'

/** A line that a test holds in its hand. */
class Hand implements Transport {
  readonly live = true
  readonly sent: Numbered[] = []
  listener: Listener | null = null
  open(listener: Listener): void {
    this.listener = listener
  }
  send(question: Numbered): void {
    this.sent.push(question)
  }
  close(): void {
    this.listener = null
  }
  answer(message: object): void {
    this.listener!.frame(writeFrame(message))
  }
}

function talk() {
  const hand = new Hand()
  const lines: Line[] = []
  const making: unknown[] = []
  const client = new Client(hand, { line: (line) => lines.push(line), making: (message) => making.push(message) })
  const heard: string[] = []
  const ask = (name: string, channel = 'main') =>
    client.ask(channel, null, { kind: 'read', source: name }, {
      frame: ({ message }) => heard.push(`${name}:${message.kind}`),
      failed: (sentence) => heard.push(`${name}:failed:${sentence}`),
    })
  return { hand, lines, making, client, heard, ask }
}

describe('a client', () => {
  it('numbers its questions and hears the answers to them', () => {
    const { hand, heard, ask } = talk()
    ask('a')
    ask('b', 'other')
    hand.answer({ id: 2, kind: 'tokens', last: true })
    hand.answer({ id: 1, kind: 'result', last: false })
    expect(heard).toEqual(['b:tokens', 'a:result'])
  })

  it('hears no more of a question when a newer one was asked in its channel', () => {
    const { hand, heard, ask } = talk()
    ask('old')
    ask('new')
    hand.answer({ id: 1, kind: 'result', last: true })
    hand.answer({ id: 2, kind: 'result', last: true })
    expect(heard).toEqual(['new:result'])
  })

  it('asks what is unanswered again when the line is back', () => {
    const { hand, ask } = talk()
    ask('done', 'a')
    ask('open', 'b')
    hand.answer({ id: 1, kind: 'result', last: true })
    hand.listener!.line('lost')
    hand.listener!.line('open')
    expect(hand.sent.map(({ id }) => id)).toEqual([1, 2, 2])
  })

  it('passes on sentences about what went wrong', () => {
    const { hand, heard, ask } = talk()
    ask('a')
    hand.answer({ id: 1, kind: 'error', last: true, message: 'The sentence is too long.' })
    expect(heard).toEqual(['a:failed:The sentence is too long.'])
  })

  it('tells of a model in the making without ending the question', () => {
    const { hand, heard, making, ask } = talk()
    ask('a')
    hand.answer({ id: 1, kind: 'making', last: false, done: 0.5 })
    hand.answer({ id: 1, kind: 'models', last: true })
    expect(making).toHaveLength(1)
    expect(heard).toEqual(['a:models'])
  })
})

describe('a recording', () => {
  const recordings = [
    { question: { kind: 'read', source: 'a cat', beam: 1 }, frames: ['x'] },
    { question: { kind: 'maths', source: 'a cat', target_ids: [5, 2], part: 'cross', layer: 0, head: 1, query: 0 }, frames: ['y'] },
  ]

  it('answers what was asked then, whatever the manner', () => {
    const asked = { kind: 'read', source: 'a cat', candidates: 8, first: { part: 'cross', layer: 1 }, id: 9, channel: 'main', model: 'm', changes: [] }
    expect(matching(asked, recordings)).toBe(recordings[0])
  })

  it('does not answer what was not asked', () => {
    expect(matching({ kind: 'read', source: 'a dog' }, recordings)).toBeUndefined()
    expect(matching({ kind: 'read', source: 'a cat', beam: 5 }, recordings)).toBeUndefined()
    expect(matching({ ...recordings[1]!.question, head: 0 }, recordings)).toBeUndefined()
  })
})
