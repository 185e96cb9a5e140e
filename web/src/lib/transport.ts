/** Ways a question reaches a model: a WebSocket, a notebook's kernel, or answers recorded in the page itself. */

import type { Numbered, Question } from './messages'

export type Line = 'connecting' | 'open' | 'lost' | 'recorded'

/** Where bytes and news of the line go. */
export interface Listener {
  frame(bytes: ArrayBuffer | ArrayBufferView, id?: number): void
  line(state: Line): void
  /** The question with this number has no recorded answer. */
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

/** A WebSocket that opens itself again, waiting a little longer each time. */
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
    listener.line('connecting')
    const socket = new WebSocket(this.address)
    socket.binaryType = 'arraybuffer'
    this.socket = socket
    socket.onopen = () => {
      this.wait = FIRST_WAIT_MS
      listener.line('open')
    }
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (event.data instanceof ArrayBuffer) listener.frame(event.data)
    }
    socket.onclose = () => {
      if (this.closed) return
      listener.line('lost')
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

/** What we use of the model that anywidget hands to `render`. */
export interface Kernel {
  get(name: string): unknown
  set(name: string, value: unknown): void
  save_changes(): void
  send(content: unknown): void
  on(event: string, callback: (...details: never[]) => void): void
  off(event: string, callback: (...details: never[]) => void): void
}

/** A notebook's kernel: questions as custom messages, one frame in the first buffer of each reply. */
export class KernelTransport implements Transport {
  readonly live = true
  private heard: ((message: unknown, buffers: (ArrayBuffer | ArrayBufferView)[]) => void) | null = null
  private readonly kernel: Kernel

  constructor(kernel: Kernel) {
    this.kernel = kernel
  }

  open(listener: Listener): void {
    this.heard = (_message, buffers) => {
      if (buffers[0]) listener.frame(buffers[0])
    }
    this.kernel.on('msg:custom', this.heard as never)
    listener.line('open')
  }

  send(question: Numbered): void {
    this.kernel.send({ kind: 'ask', question })
  }

  close(): void {
    if (this.heard) this.kernel.off('msg:custom', this.heard as never)
  }
}

export interface Recording {
  question: Question
  frames: string[]
}

/** Answers embedded in a self-contained page; what was not recorded is said to be missing. */
export class RecordedTransport implements Transport {
  readonly live = false
  private listener: Listener | null = null
  private readonly recordings: readonly Recording[]

  constructor(recordings: readonly Recording[]) {
    this.recordings = recordings
  }

  open(listener: Listener): void {
    this.listener = listener
    queueMicrotask(() => listener.line('recorded'))
  }

  send(question: Numbered): void {
    const found = matching(question, this.recordings)
    const { listener } = this
    // Later, as a network would: nobody expects an answer before the question was noted.
    setTimeout(() => {
      if (!found) listener?.missing(question.id)
      else for (const frame of found.frames) listener?.frame(decode(frame), question.id)
    }, 0)
  }

  close(): void {
    this.listener = null
  }
}

/** Details that say how to answer, not what is asked: a recording fits whatever they are. */
const MANNERS = new Set(['id', 'channel', 'first', 'want', 'candidates', 'model'])
const DEFAULTS: Record<string, unknown> = { beam: 1, count: 64 }

/** The recording that answers this question, if there is one. */
export function matching(question: Question, recordings: readonly Recording[]): Recording | undefined {
  return recordings.find(({ question: recorded }) => {
    if (question['model'] && recorded['model'] && question['model'] !== recorded['model']) return false
    const names = new Set([...Object.keys(question), ...Object.keys(recorded)].filter((name) => !MANNERS.has(name)))
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
