/** Exact weights of the rows that were looked at, and what each head is worth: asked when wished for, kept while they hold. */

import { getContext, setContext } from 'svelte'
import type { Explorer } from './explorer.svelte'
import type { Part, ResultMessage } from './messages'
import type { Reading } from './reading.svelte'
import { merged } from './weights'

const PAUSE_MS = 50

/** Exact rows of the heads of one reading. */
export class Rows {
  private known: ReadonlyMap<string, Float32Array> = $state.raw(new Map())
  private of: Reading | null = null
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly look: Explorer

  constructor(look: Explorer) {
    this.look = look
  }

  private place(query: number): { key: string; member: number } | null {
    const { selection, state } = this.look
    const members = selection?.queries.groups[query]?.members
    if (!selection || members?.length !== 1 || selection.heads.length !== 1 || state.aggregate !== 'head') return null
    return { key: `${selection.part}/${selection.layer}/${selection.heads[0]}/${members[0]}`, member: members[0]! }
  }

  /** The exact weights of a row of the selection, over its groups, if they are known. */
  row(query: number): Float32Array | undefined {
    const place = this.place(query)
    const { selection, shown } = this.look
    // Read first, so that whoever asks is told when a row arrives.
    const row = place ? this.known.get(place.key) : undefined
    if (!row || !selection || shown !== this.of) return undefined
    const one = { members: [0], text: '', special: false }
    return merged({ rows: 1, columns: row.length, data: row }, [one], selection.keys.groups).data
  }

  /** Ask for a row after a moment, unless it is known or the look has moved on by then. */
  want(query: number): void {
    const { look } = this
    const { shown, selection } = look
    if (shown !== this.of) {
      this.of = shown
      this.known = new Map()
    }
    const place = this.place(query)
    clearTimeout(this.timer)
    if (!place || !selection || !shown?.done || !look.client.live || this.known.has(place.key)) return
    const changes = shown === look.altered ? { changes: $state.snapshot(look.state.changes) } : {}
    const question = {
      kind: 'row', source: look.state.source, target_ids: shown.ids, ...changes,
      part: selection.part, layer: selection.layer, head: selection.heads[0], query: place.member,
    }
    this.timer = setTimeout(() => {
      look.ask('row', question, {
        frame: ({ tensors }) => {
          if (look.shown !== shown) return
          this.known = new Map(this.known).set(place.key, tensors.get('weights')?.data as Float32Array)
        },
      })
    }, PAUSE_MS)
  }
}

export interface HeadPlace {
  part: Part
  layer: number
  head: number
}

/** What the found translation loses in log-probability when a head is silenced: asked head by head. */
export class Effects {
  known: ReadonlyMap<string, number> = $state.raw(new Map())
  waiting = $state(0)
  private queue: HeadPlace[] = []
  private of: Reading | null = null
  private readonly look: Explorer

  constructor(look: Explorer) {
    this.look = look
  }

  /** The change in log-probability without this head, if it was measured. */
  effect({ part, layer, head }: HeadPlace): number | undefined {
    const found = this.known.get(`${part}/${layer}/${head}`)
    return this.look.base === this.of ? found : undefined
  }

  /** Measure these heads, one after the other; those that are known are not asked again. */
  measure(heads: readonly HeadPlace[]): void {
    const { base, client } = this.look
    if (!base?.done || !client.live) return
    if (base !== this.of) {
      this.of = base
      this.known = new Map()
      this.queue = []
    }
    const running = this.queue.length > 0
    const fresh = heads.filter((place) => this.effect(place) === undefined && !this.queue.some((each) => same(each, place)))
    this.queue.push(...fresh)
    this.waiting = this.queue.length
    if (!running) this.next(base)
  }

  private next(base: Reading): void {
    const place = this.queue[0]
    const { look } = this
    if (!place || look.base !== base) {
      this.queue = []
      this.waiting = 0
      return
    }
    const { part, layer, head } = place
    const changes = [{ op: 'ablate', part, layer, heads: [head], how: 'zero' }]
    const question = { kind: 'read', source: look.state.source, target_ids: base.ids, changes, want: [], candidates: 1 }
    const goOn = () => {
      if (this.queue[0] !== place) return
      this.queue.shift()
      this.waiting = this.queue.length
      this.next(base)
    }
    look.ask('effect', question, {
      frame: ({ message }) => {
        if (message.kind === 'result' && look.base === base) {
          const total = (message as ResultMessage).logprobs.reduce((sum, each) => sum + each, 0)
          this.known = new Map(this.known).set(`${part}/${layer}/${head}`, total - base.total)
        }
        if (message.last) goOn()
      },
      failed: goOn,
      missing: goOn,
    })
  }
}

function same(a: HeadPlace, b: HeadPlace): boolean {
  return a.part === b.part && a.layer === b.layer && a.head === b.head
}

const KEY = Symbol('effects')

/** Hand the measured effects to every component below. */
export function provideEffects(effects: Effects): void {
  setContext(KEY, effects)
}

/** The effects that a component above has provided. */
export function effects(): Effects {
  return getContext<Effects>(KEY)
}
