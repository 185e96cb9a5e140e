/** Data that is requested on demand: exact weights of single queries, and the effect of ablating each head. */

import { getContext, setContext } from 'svelte'
import type { Explorer } from './explorer.svelte'
import type { Part, ResultMessage } from './messages'
import { outputLogprob, type Inspection } from './inspection.svelte'
import { mergeGroups } from './weights'

const PAUSE_MS = 50

/** Exact weights of the queries that were in focus. */
export class ExactRows {
  private known: ReadonlyMap<string, Float32Array> = $state.raw(new Map())
  private of: Inspection | null = null
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly explorer: Explorer

  constructor(explorer: Explorer) {
    this.explorer = explorer
  }

  private place(query: number): { key: string; member: number } | null {
    const { selection, state } = this.explorer
    const members = selection?.queries.groups[query]?.members
    if (!selection || members?.length !== 1 || selection.heads.length !== 1 || state.aggregate !== 'head') return null
    return { key: `${selection.part}/${selection.layer}/${selection.heads[0]}/${members[0]}`, member: members[0]! }
  }

  /** Return the exact weights of a row of the selection, by group, if they are known. */
  row(query: number): Float32Array | undefined {
    const place = this.place(query)
    const { selection, shown } = this.explorer
    // Read the map first, so that callers are notified when a row arrives.
    const row = place ? this.known.get(place.key) : undefined
    if (!row || !selection || shown !== this.of) return undefined
    const single = { members: [0], text: '', special: false }
    return mergeGroups({ rows: 1, columns: row.length, data: row }, [single], selection.keys.groups).data
  }

  /** Request a row after a short delay, unless it is known or the focus moves on. */
  want(query: number): void {
    const { explorer } = this
    const { shown, selection } = explorer
    if (shown !== this.of) {
      this.of = shown
      this.known = new Map()
    }
    const place = this.place(query)
    clearTimeout(this.timer)
    if (!place || !selection || !shown?.done || !explorer.client.live || this.known.has(place.key)) return
    const changes = shown === explorer.altered ? { changes: $state.snapshot(explorer.state.changes) } : {}
    const question = {
      kind: 'row', ...explorer.input, target_ids: shown.ids, ...changes,
      part: selection.part, layer: selection.layer, head: selection.heads[0], query: place.member,
    }
    this.timer = setTimeout(() => {
      explorer.ask('row', question, {
        frame: ({ tensors }) => {
          if (explorer.shown !== shown) return
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

/** How much log-probability the output loses when a head is set to zero, measured head by head. */
export class HeadEffects {
  known: ReadonlyMap<string, number> = $state.raw(new Map())
  waiting = $state(0)
  private queue: HeadPlace[] = []
  private of: Inspection | null = null
  private readonly explorer: Explorer

  constructor(explorer: Explorer) {
    this.explorer = explorer
  }

  /** Return the change in log-probability without this head, if it was measured. */
  effect({ part, layer, head }: HeadPlace): number | undefined {
    const effect = this.known.get(`${part}/${layer}/${head}`)
    return this.explorer.base === this.of ? effect : undefined
  }

  /** Measure these heads one after the other; known effects are not measured again. */
  measure(heads: readonly HeadPlace[]): void {
    const { base, client } = this.explorer
    if (!base?.done || !client.live) return
    if (base !== this.of) {
      this.of = base
      this.known = new Map()
      this.queue = []
    }
    const running = this.queue.length > 0
    const fresh = heads.filter((place) => this.effect(place) === undefined && !this.queue.some((queued) => same(queued, place)))
    this.queue.push(...fresh)
    this.waiting = this.queue.length
    if (!running) this.next(base)
  }

  private next(base: Inspection): void {
    const place = this.queue[0]
    const { explorer } = this
    if (!place || explorer.base !== base) {
      this.queue = []
      this.waiting = 0
      return
    }
    const { part, layer, head } = place
    const changes = [{ op: 'ablate', part, layer, heads: [head], how: 'zero' }]
    const question = { kind: 'read', ...explorer.input, target_ids: base.ids, changes, want: [], candidates: 1 }
    const proceed = () => {
      if (this.queue[0] !== place) return
      this.queue.shift()
      this.waiting = this.queue.length
      this.next(base)
    }
    explorer.ask('effect', question, {
      frame: ({ message }) => {
        if (message.kind === 'result' && explorer.base === base) {
          const total = outputLogprob((message as ResultMessage).logprobs, base.prompt)
          this.known = new Map(this.known).set(`${part}/${layer}/${head}`, total - base.total)
        }
        if (message.last) proceed()
      },
      failed: proceed,
      missing: proceed,
    })
  }
}

function same(a: HeadPlace, b: HeadPlace): boolean {
  return a.part === b.part && a.layer === b.layer && a.head === b.head
}

const KEY = Symbol('head effects')

/** Provide the measured effects to all components below. */
export function provideHeadEffects(effects: HeadEffects): void {
  setContext(KEY, effects)
}

/** Return the effects that a component above provides. */
export function useHeadEffects(): HeadEffects {
  return getContext<HeadEffects>(KEY)
}
