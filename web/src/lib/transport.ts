/** Transports for questions and frames: a WebSocket, a notebook kernel, or answers recorded in the page. */

import type { Numbered, Question } from './messages'

export type Connection = 'connecting' | 'open' | 'lost' | 'recorded'

/** Receives frames and changes of the connection. */
export interface Listener {
  frame(bytes: ArrayBuffer | ArrayBufferView, id?: number): void
  connection(state: Connection): void
  /** There is no recorded answer to the question with this id. */
  missing(id: number): void
}

export interface Transport {
  readonly live: boolean
  open(listener: Listener): void
  send(question: Numbered): void
  close(): void
}

const FIRST_WAIT_MS = 400
const LONGEST_WAIT_MS = 4000

/** A WebSocket that reconnects with increasing delays. */
export class SocketTransport implements Transport {
  readonly live = true
  private socket: WebSocket | null = null
  private wait = FIRST_WAIT_MS
  private closed = false
  private readonly address: string

  constructor(address: string) {
    this.address = address
  }

  open(listener: Listener): void {
    listener.connection('connecting')
    const socket = new WebSocket(this.address)
    socket.binaryType = 'arraybuffer'
    this.socket = socket
    socket.onopen = () => {
      this.wait = FIRST_WAIT_MS
      listener.connection('open')
    }
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (event.data instanceof ArrayBuffer) listener.frame(event.data)
    }
    socket.onclose = () => {
      if (this.closed) return
      listener.connection('lost')
      setTimeout(() => !this.closed && this.open(listener), this.wait)
      this.wait = Math.min(LONGEST_WAIT_MS, this.wait * 1.6)
    }
  }

  send(question: Numbered): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(question))
  }

  close(): void {
    this.closed = true
    this.socket?.close()
  }
}

/** The part of anywidget's model that is used here. */
export interface Kernel {
  get(name: string): unknown
  set(name: string, value: unknown): void
  save_changes(): void
  send(content: unknown): void
  on(event: string, callback: (...details: never[]) => void): void
  off(event: string, callback: (...details: never[]) => void): void
}

/** A notebook kernel: questions are custom messages, and each reply has one frame in its first buffer. */
export class KernelTransport implements Transport {
  readonly live = true
  private callback: ((message: unknown, buffers: (ArrayBuffer | ArrayBufferView)[]) => void) | null = null
  private readonly kernel: Kernel

  constructor(kernel: Kernel) {
    this.kernel = kernel
  }

  open(listener: Listener): void {
    this.callback = (_message, buffers) => {
      if (buffers[0]) listener.frame(buffers[0])
    }
    this.kernel.on('msg:custom', this.callback as never)
    listener.connection('open')
  }

  send(question: Numbered): void {
    this.kernel.send({ kind: 'ask', question })
  }

  close(): void {
    if (this.callback) this.kernel.off('msg:custom', this.callback as never)
  }
}

export interface Recording {
  question: Question
  frames: string[]
}

/** Answers embedded in a self-contained page; other questions are reported as missing. */
export class RecordedTransport implements Transport {
  readonly live = false
  private listener: Listener | null = null
  private readonly recordings: readonly Recording[]

  constructor(recordings: readonly Recording[]) {
    this.recordings = recordings
  }

  open(listener: Listener): void {
    this.listener = listener
    queueMicrotask(() => listener.connection('recorded'))
  }

  send(question: Numbered): void {
    const recording = matching(question, this.recordings)
    const { listener } = this
    // Asynchronous like a network: the client registers a question before its answer can arrive.
    setTimeout(() => {
      if (!recording) listener?.missing(question.id)
      else for (const frame of recording.frames) listener?.frame(decode(frame), question.id)
    }, 0)
  }

  close(): void {
    this.listener = null
  }
}

/** Fields that do not change the content of an answer: a recording matches whatever they are. */
const IGNORED = new Set(['id', 'channel', 'first', 'want', 'candidates', 'model'])
const DEFAULTS: Record<string, unknown> = { beam: 1, count: 64 }

/** Return the recording that answers a question, if there is one. */
export function matching(question: Question, recordings: readonly Recording[]): Recording | undefined {
  return recordings.find(({ question: recorded }) => {
    if (question['model'] && recorded['model'] && question['model'] !== recorded['model']) return false
    const names = new Set([...Object.keys(question), ...Object.keys(recorded)].filter((name) => !IGNORED.has(name)))
    return [...names].every((name) => canonical(question, name) === canonical(recorded, name))
  })
}

function canonical(question: Question, name: string): string {
  const value = question[name] ?? DEFAULTS[name] ?? null
  return JSON.stringify(Array.isArray(value) && value.length === 0 ? null : value)
}

function decode(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
}
