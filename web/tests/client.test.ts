import { describe, expect, it } from 'vitest'
import { Client } from '../src/lib/client'
import { writeFrame } from '../src/lib/mock'
import type { Numbered } from '../src/lib/messages'
import { matching, type Connection, type Listener, type Transport } from '../src/lib/transport'

/** A transport whose answers the test writes. */
class ManualTransport implements Transport {
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

function connect() {
  const transport = new ManualTransport()
  const states: Connection[] = []
  const training: unknown[] = []
  const client = new Client(transport, { connection: (state) => states.push(state), training: (message) => training.push(message) })
  const received: string[] = []
  const ask = (name: string, channel = 'main') =>
    client.ask(channel, null, { kind: 'read', source: name }, {
      frame: ({ message }) => received.push(`${name}:${message.kind}`),
      failed: (message) => received.push(`${name}:failed:${message}`),
    })
  return { transport, states, training, client, received, ask }
}

describe('a client', () => {
  it('gives questions an id and passes on their answers', () => {
    const { transport, received, ask } = connect()
    ask('a')
    ask('b', 'other')
    transport.answer({ id: 2, kind: 'tokens', last: true })
    transport.answer({ id: 1, kind: 'result', last: false })
    expect(received).toEqual(['b:tokens', 'a:result'])
  })

  it('drops the answer to a question when a newer one was asked in its channel', () => {
    const { transport, received, ask } = connect()
    ask('old')
    ask('new')
    transport.answer({ id: 1, kind: 'result', last: true })
    transport.answer({ id: 2, kind: 'result', last: true })
    expect(received).toEqual(['new:result'])
  })

  it('sends unanswered questions again after a lost connection', () => {
    const { transport, ask } = connect()
    ask('done', 'a')
    ask('open', 'b')
    transport.answer({ id: 1, kind: 'result', last: true })
    transport.listener!.connection('lost')
    transport.listener!.connection('open')
    expect(transport.sent.map(({ id }) => id)).toEqual([1, 2, 2])
  })

  it('passes on error messages', () => {
    const { transport, received, ask } = connect()
    ask('a')
    transport.answer({ id: 1, kind: 'error', last: true, message: 'The sentence is too long.' })
    expect(received).toEqual(['a:failed:The sentence is too long.'])
  })

  it('passes on the progress of training without ending the question', () => {
    const { transport, received, training, ask } = connect()
    ask('a')
    transport.answer({ id: 1, kind: 'training', last: false, done: 0.5 })
    transport.answer({ id: 1, kind: 'models', last: true })
    expect(training).toHaveLength(1)
    expect(received).toEqual(['a:models'])
  })
})

describe('a recording', () => {
  const recordings = [
    { question: { kind: 'read', source: 'a cat', beam: 1 }, frames: ['x'] },
    { question: { kind: 'maths', source: 'a cat', target_ids: [5, 2], part: 'cross', layer: 0, head: 1, query: 0 }, frames: ['y'] },
  ]

  it('answers recorded questions, whatever their options', () => {
    const question = { kind: 'read', source: 'a cat', candidates: 8, first: { part: 'cross', layer: 1 }, id: 9, channel: 'main', model: 'm', changes: [] }
    expect(matching(question, recordings)).toBe(recordings[0])
  })

  it('does not answer other questions', () => {
    expect(matching({ kind: 'read', source: 'a dog' }, recordings)).toBeUndefined()
    expect(matching({ kind: 'read', source: 'a cat', beam: 5 }, recordings)).toBeUndefined()
    expect(matching({ ...recordings[1]!.question, head: 0 }, recordings)).toBeUndefined()
  })
})
