/** Ask questions over a transport: give them ids, drop stale answers, and ask again after a lost connection. */

import type { ErrorMessage, TrainingMessage, Numbered, Question } from './messages'
import type { Connection, Transport } from './transport'
import { readFrame, type Frame } from './wire'

export interface AnswerHandlers {
  frame(frame: Frame): void
  /** The question cannot be answered; the message says why. */
  failed?(message: string): void
  /** The page is a recording without this answer. */
  missing?(): void
}

interface PendingQuestion {
  question: Numbered
  handlers: AnswerHandlers
}

/** Events that belong to no single question. */
export interface ConnectionHandlers {
  connection(state: Connection): void
  training(message: TrainingMessage): void
}

export class Client {
  private next = 1
  private readonly newest = new Map<string, PendingQuestion>()
  private readonly pending = new Map<number, PendingQuestion>()
  private readonly transport: Transport

  constructor(transport: Transport, events: ConnectionHandlers) {
    this.transport = transport
    transport.open({
      frame: (bytes, id) => this.receive(bytes, id, events),
      connection: (state) => {
        events.connection(state)
        if (state === 'open' || state === 'recorded') this.askAgain()
      },
      missing: (id) => {
        this.pending.get(id)?.handlers.missing?.()
        this.pending.delete(id)
      },
    })
  }

  get live(): boolean {
    return this.transport.live
  }

  /** Ask a question. A newer question in the same channel makes it stale, and its frames are dropped. */
  ask(channel: string, model: string | null, question: Question, handlers: AnswerHandlers): void {
    const pending = { question: { ...question, id: this.next++, channel, model }, handlers }
    this.drop(channel)
    this.newest.set(channel, pending)
    this.pending.set(pending.question.id, pending)
    this.transport.send(pending.question)
  }

  /** Drop the answer to the last question of a channel. */
  drop(channel: string): void {
    const old = this.newest.get(channel)
    if (old) this.pending.delete(old.question.id)
    this.newest.delete(channel)
  }

  close(): void {
    this.transport.close()
  }

  /** Send all unanswered questions again, under their old ids. */
  private askAgain(): void {
    for (const { question } of this.pending.values()) this.transport.send(question)
  }

  private receive(bytes: ArrayBuffer | ArrayBufferView, id: number | undefined, events: ConnectionHandlers): void {
    const frame = readFrame(bytes)
    const { message } = frame
    if (message.kind === 'training') {
      events.training(message as TrainingMessage)
      return
    }
    const pending = this.pending.get(id ?? message.id)
    if (!pending) return
    if (message.last) this.pending.delete(pending.question.id)
    if (message.kind === 'error') pending.handlers.failed?.((message as ErrorMessage).message)
    else pending.handlers.frame(frame)
  }
}
