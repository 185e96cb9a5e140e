/** Asks questions over a transport: numbers them, drops answers that are stale, asks again after a lost line. */

import type { ErrorMessage, MakingMessage, Numbered, Question } from './messages'
import type { Line, Transport } from './transport'
import { readFrame, type Frame } from './wire'

export interface Answering {
  frame(frame: Frame): void
  /** The answer ended in a sentence that says why there is none. */
  failed?(sentence: string): void
  /** The page is a recording that does not hold this answer. */
  missing?(): void
}

interface Asked {
  question: Numbered
  answering: Answering
}

/** Frames that do not end a `Client`'s answers but tell of the whole line. */
export interface News {
  line(state: Line): void
  making(message: MakingMessage): void
}

export class Client {
  private next = 1
  private readonly newest = new Map<string, Asked>()
  private readonly pending = new Map<number, Asked>()
  private readonly transport: Transport

  constructor(transport: Transport, news: News) {
    this.transport = transport
    transport.open({
      frame: (bytes, id) => this.hear(bytes, id, news),
      line: (state) => {
        news.line(state)
        if (state === 'open' || state === 'recorded') this.askAgain()
      },
      missing: (id) => {
        this.pending.get(id)?.answering.missing?.()
        this.pending.delete(id)
      },
    })
  }

  get live(): boolean {
    return this.transport.live
  }

  /** Ask; a newer question in the same channel makes this one stale, and its frames are then heard no more. */
  ask(channel: string, model: string | null, question: Question, answering: Answering): void {
    const asked = { question: { ...question, id: this.next++, channel, model }, answering }
    this.drop(channel)
    this.newest.set(channel, asked)
    this.pending.set(asked.question.id, asked)
    this.transport.send(asked.question)
  }

  /** Nobody waits for what was last asked in this channel. */
  drop(channel: string): void {
    const old = this.newest.get(channel)
    if (old) this.pending.delete(old.question.id)
    this.newest.delete(channel)
  }

  close(): void {
    this.transport.close()
  }

  /** After a lost line every unanswered question is put again, under its old number. */
  private askAgain(): void {
    for (const { question } of this.pending.values()) this.transport.send(question)
  }

  private hear(bytes: ArrayBuffer | ArrayBufferView, id: number | undefined, news: News): void {
    const frame = readFrame(bytes)
    const { message } = frame
    if (message.kind === 'making') {
      news.making(message as MakingMessage)
      return
    }
    const asked = this.pending.get(id ?? message.id)
    if (!asked) return
    if (message.last) this.pending.delete(asked.question.id)
    if (message.kind === 'error') asked.answering.failed?.((message as ErrorMessage).message)
    else asked.answering.frame(frame)
  }
}
