/** The state of the whole page: what is wished (and stands in the address), and what was answered to it. */

import { getContext, setContext, untrack } from 'svelte'
import { defaults, understood, type State } from './address'
import { Client } from './client'
import { now, measuredWhenPainted } from './measures'
import type { MakingMessage, Model, ModelsMessage, PartShape, Question, ResultMessage, Token, TokensMessage } from './messages'
import { Reading } from './reading.svelte'
import { select, type At, type Selection } from './selection'
import type { Line, Transport } from './transport'
import { Undo } from './undo'

const DEBOUNCE_MS = 90
const LONG = 128

/** What the pointer or the arrow keys are on: a row, a column or a cell of the shown matrix, by group. */
export interface Focus {
  query: number | null
  key: number | null
}

export class Explorer {
  state: State = $state(defaults())
  line: Line = $state('connecting')
  models: readonly Model[] = $state.raw([])
  making: MakingMessage | null = $state.raw(null)
  failed = $state('')
  missing = $state(false)

  /** The tokens of what is typed, there before anything else is. */
  typed: readonly Token[] = $state.raw([])
  base: Reading | null = $state.raw(null)
  /** The same sentence under the changes and the forced beginning; nothing where there are none. */
  altered: Reading | null = $state.raw(null)
  busy = $state(false)
  hover: Focus | null = $state.raw(null)
  readonly client: Client
  readonly undo = new Undo<Pick<State, 'changes' | 'prefix'>>()
  undoable = $state({ undo: false, redo: false })

  /** The state was changed by nobody: not a step that one would go back. */
  unasked = false
  private typing = false
  private typedAt = 0
  private changedAt = 0
  private timer: ReturnType<typeof setTimeout> | undefined
  private fresh: boolean
  private readonly stop: () => void

  constructor(transport: Transport, hash: string) {
    this.fresh = !/(layer|head)=/.test(hash)
    Object.assign(this.state, understood(hash))
    this.client = new Client(transport, {
      line: (line) => (this.line = line),
      making: (message) => (this.making = message),
    })
    this.askModels()
    this.stop = $effect.root(() => {
      $effect(() => {
        const { model, state } = this
        if (model && JSON.stringify([model.name, state.source, state.target, state.beam])) untrack(() => this.whenSentenceChanges())
      })
      $effect(() => {
        const { base, state } = this
        if (base?.done && JSON.stringify([state.changes, state.prefix])) untrack(() => this.whenChanged(base))
      })
      $effect(() => this.fillIn())
    })
  }

  close(): void {
    this.stop()
    clearTimeout(this.timer)
    this.client.close()
  }

  /** Call `heed` now and whenever what it reads has changed; the answer ends that. */
  watch(heed: () => void): () => void {
    return $effect.root(() => {
      $effect(heed)
    })
  }

  readonly model: Model | undefined = $derived.by(() => this.models.find(({ name }) => name === this.state.model) ?? this.models[0])
  readonly hasChanges = $derived.by(() => this.state.changes.length > 0 || this.state.prefix.length > 0)
  /** What the views show: the changed reading where something was changed. */
  readonly shown = $derived.by(() => (this.hasChanges && this.altered ? this.altered : this.base))

  /** The part, layer and heads that are shown: those wished for, as far as this model has them. */
  readonly shape: PartShape | undefined = $derived.by(() => {
    const parts = this.model?.parts ?? []
    return parts.find(({ part }) => part === this.state.part) ?? parts.find(({ part }) => part === 'cross') ?? parts[0]
  })
  readonly at: At | null = $derived.by(() => {
    const { shape, state } = this
    if (!shape) return null
    const heads = state.heads.filter((head) => head < shape.heads)
    return { part: shape.part, layer: Math.min(state.layer, shape.layers - 1), heads: heads.length ? heads : [0] }
  })
  readonly selection: Selection | null = $derived.by(() => {
    const { shown, at, model } = this
    const { aggregate, words, specials, threshold, top } = this.state
    return shown && at && model ? select(shown, at, { aggregate, words, specials, threshold, top }, model.rtl) : null
  })

  /** What is looked at: what the pointer is on, else what is pinned. */
  readonly focus: Focus | null = $derived.by(() => {
    if (this.hover) return this.hover
    const { selection } = this
    const { pin } = this.state
    if (!pin || !selection) return null
    const groups = pin.side === 'query' ? selection.queries.groups : selection.keys.groups
    const found = groups.findIndex(({ members }) => members.includes(pin.place))
    if (found < 0) return null
    return pin.side === 'query' ? { query: found, key: null } : { query: null, key: found }
  })

  /** Somebody typed: the tokens come at once, the rest after a short pause. */
  type(source: string): void {
    this.typing = true
    this.typedAt = now()
    this.state.source = source
    // What was said of single tokens says nothing of those of another sentence.
    if (this.state.prefix.length) this.state.prefix = []
    const general = this.state.changes.filter(({ op }) => op === 'ablate' || op === 'keep')
    if (general.length < this.state.changes.length) this.state.changes = general
    this.state.pin = null
  }

  /** Ask in a channel for the model that is shown. */
  ask(channel: string, question: Question, answering: Parameters<Client['ask']>[3]): void {
    this.client.ask(channel, this.model?.name ?? null, question, answering)
  }

  private askModels(): void {
    this.client.ask('models', null, { kind: 'models' }, {
      frame: ({ message }) => {
        this.making = null
        this.models = (message as ModelsMessage).models
        if (!this.state.source) this.state.source = this.model?.examples[0] ?? ''
        measuredWhenPainted('ready', 0)
      },
      failed: (sentence) => (this.failed = sentence),
      missing: () => (this.failed = 'This recording names no model.'),
    })
  }

  private whenSentenceChanges(): void {
    clearTimeout(this.timer)
    const start = this.typing ? this.typedAt : now()
    if (!this.state.source.trim()) {
      this.empty()
      return
    }
    this.askTokens(start)
    if (this.typing) this.timer = setTimeout(() => this.read(start), DEBOUNCE_MS)
    else this.read(start)
    this.typing = false
  }

  private empty(): void {
    for (const channel of ['tokens', 'main', 'altered']) this.client.drop(channel)
    Object.assign(this, { typed: [], base: null, altered: null, busy: false, failed: '', typing: false })
  }

  private askTokens(start: number): void {
    this.ask('tokens', { kind: 'tokens', source: this.state.source }, {
      frame: ({ message }) => {
        this.typed = (message as TokensMessage).tokens
        measuredWhenPainted('tokens', start)
      },
    })
  }

  /** The question for a reading of the sentence, with what else it is to hold. */
  question(more: Record<string, unknown> = {}): Question {
    const { source, target, beam } = this.state
    const first = this.at ? { part: this.at.part, layer: this.at.layer } : undefined
    const long = this.typed.length > LONG && this.at ? { want: this.needed() } : {}
    return { kind: 'read', source, beam, candidates: 8, first, ...long, ...(target ? { target } : {}), ...more }
  }

  private read(start: number): void {
    this.failed = ''
    this.missing = false
    this.busy = true
    this.client.drop('altered')
    this.altered = null
    const reading = new Reading()
    let last = start
    this.ask('main', this.question(), {
      frame: (frame) => {
        const { kind } = frame.message
        const first = { encoder: !reading.layers.size, target: !reading.target.length }
        reading.take(frame)
        if (kind === 'tokens') this.base = reading
        if ((kind === 'encoder' || kind === 'attention') && first.encoder) measuredWhenPainted('encoder', start)
        if (kind === 'target' || (kind === 'result' && first.target)) {
          measuredWhenPainted(first.target ? 'first-target' : 'next-target', first.target ? start : last)
          last = now()
        }
        if (kind === 'result') measuredWhenPainted('result', start)
        if (reading.done) this.finished(reading)
      },
      failed: (sentence) => this.fail(sentence),
      missing: () => {
        this.missing = true
        this.busy = false
      },
    })
  }

  private fail(sentence: string): void {
    this.failed = sentence
    this.busy = false
  }

  private finished(reading: Reading): void {
    this.busy = false
    if (this.fresh && reading.facts.length) this.openMostConfident(reading)
    this.fresh = false
  }

  /** A first visitor sees the head that is surest of itself, not merely the first one. */
  private openMostConfident(reading: Reading): void {
    const facts = reading.facts.filter(({ part }) => part === this.at?.part)
    const best = facts.reduce<(typeof facts)[number] | undefined>((a, b) => (a && a.confidence >= b.confidence ? a : b), undefined)
    if (!best) return
    this.unasked = true
    Object.assign(this.state, { layer: best.layer, heads: [best.head] })
  }

  private whenChanged(base: Reading): void {
    if (!this.hasChanges) {
      this.client.drop('altered')
      this.altered = null
      return
    }
    const start = this.changedAt || now()
    this.changedAt = 0
    const reading = new Reading()
    const { changes, prefix } = $state.snapshot(this.state)
    this.busy = true
    this.ask('altered', this.question({ changes, prefix, baseline: base.ids }), {
      frame: (frame) => {
        reading.take(frame)
        if (frame.message.kind === 'result') {
          this.altered = reading
          measuredWhenPainted('what-if', start)
        }
        if (reading.done) this.busy = false
      },
      failed: (sentence) => this.fail(sentence),
      missing: () => {
        this.missing = true
        this.busy = false
      },
    })
  }

  /** Change what the model does, in a way that can be undone. */
  change(next: Partial<Pick<State, 'changes' | 'prefix'>>): void {
    this.undo.leave($state.snapshot({ changes: this.state.changes, prefix: this.state.prefix }))
    this.apply(next)
  }

  stepBack(): void {
    const before = this.undo.undo($state.snapshot({ changes: this.state.changes, prefix: this.state.prefix }))
    if (before) this.apply(before)
  }

  stepForward(): void {
    const after = this.undo.redo($state.snapshot({ changes: this.state.changes, prefix: this.state.prefix }))
    if (after) this.apply(after)
  }

  private apply(next: Partial<Pick<State, 'changes' | 'prefix'>>): void {
    this.changedAt = now()
    Object.assign(this.state, next)
    this.undoable = { undo: this.undo.canUndo, redo: this.undo.canRedo }
  }

  /** The parts that the view needs. */
  private needed(): string[] {
    const parts = this.model?.parts.map(({ part }) => part) ?? []
    if (this.state.view === 'atlas' || !this.at) return parts
    return this.state.aggregate === 'rollout' ? [...new Set([this.at.part, 'encoder'])] : [this.at.part]
  }

  /** A long sentence came with one part only: ask for those that are now looked at. */
  private fillIn(): void {
    const { shown } = this
    if (!shown?.done) return
    const want = this.needed().filter((part) => !shown.layer(part as never, 0))
    if (!want.length) return
    const changes = shown === this.altered ? { changes: $state.snapshot(this.state.changes) } : {}
    const { source } = this.state
    this.ask('fill', { kind: 'read', source, target_ids: shown.ids, want, ...changes }, {
      frame: (frame) => ['encoder', 'attention', 'heads'].includes(frame.message.kind) && shown.take(frame),
    })
  }

  /** Log-probability of the shown target, and what the changes did to that of the baseline. */
  readonly baselineShift: number | null = $derived.by(() => {
    const judged = (this.altered?.result as ResultMessage | null | undefined)?.baseline
    return judged && this.base ? judged.logprobs.reduce((sum, each) => sum + each, 0) - this.base.total : null
  })
}

const KEY = Symbol('explorer')

/** Hand the explorer to every component below. */
export function provide(explorer: Explorer): void {
  setContext(KEY, explorer)
}

/** The explorer that a component above has provided. */
export function explorer(): Explorer {
  return getContext<Explorer>(KEY)
}
