/** The state of the page (which is in the URL), and the answers to it. */

import { getContext, setContext, untrack } from 'svelte'
import { defaults, parseState, type State } from './address'
import { Client } from './client'
import { ConversationReader } from './conversations.svelte'
import { DocumentReader } from './documents.svelte'
import { Inspection, outputLogprob } from './inspection.svelte'
import { now, recordTimeWhenPainted } from './measures'
import type { Change, TrainingMessage, Model, ModelsMessage, Part, PartShape, Question, Token, TokensMessage } from './messages'
import { select, type AttentionChoice, type Selection } from './selection'
import type { Connection, Transport } from './transport'
import { Undo } from './undo'

const DEBOUNCE_MS = 90
/** With more tokens than this, only the weights that are on the screen are requested. */
const LONG = 128

/** The row, column or cell of the shown matrix under the pointer or the keyboard cursor, by group. */
export interface Focus {
  query: number | null
  key: number | null
}

type Editable = Pick<State, 'changes' | 'prefix'>

export class Explorer {
  state: State = $state(defaults())
  connection: Connection = $state('connecting')
  models: readonly Model[] = $state.raw([])
  training: TrainingMessage | null = $state.raw(null)
  failed = $state('')
  missing = $state(false)

  /** The tokens of the input text, which arrive before everything else. */
  typed: readonly Token[] = $state.raw([])
  base: Inspection | null = $state.raw(null)
  /** The same input under the changes and the forced prefix; null without changes. */
  altered: Inspection | null = $state.raw(null)
  busy = $state(false)
  hover: Focus | null = $state.raw(null)
  readonly client: Client
  readonly undo = new Undo<Editable>()
  /** What a classifier says about its text. */
  readonly documents = new DocumentReader(this)
  /** What a chatbot replies to its conversation. */
  readonly conversations = new ConversationReader(this)
  undoable = $state({ undo: false, redo: false })

  /** The state was changed by the program: this makes no history entry. */
  automatic = false
  private typing = false
  private typedAt = 0
  private changedAt = 0
  private timer: ReturnType<typeof setTimeout> | undefined
  private fresh: boolean
  private readonly stop: () => void

  constructor(transport: Transport, hash: string) {
    this.fresh = !/(layer|head)=/.test(hash)
    Object.assign(this.state, parseState(hash))
    this.client = new Client(transport, {
      connection: (state) => (this.connection = state),
      training: (message) => (this.training = message),
    })
    this.askModels()
    this.stop = $effect.root(() => {
      $effect(() => {
        const { model, state } = this
        const { target, beam, turns, seed, temperature } = state
        if (model && JSON.stringify([model.name, state.inputs[model.input], target, beam, turns, seed, temperature])) untrack(() => this.inputChanged())
      })
      $effect(() => {
        const { base, reader, state } = this
        if (reader?.base && JSON.stringify(state.changes)) untrack(() => reader.change())
        if (base?.done && JSON.stringify([state.changes, state.prefix])) untrack(() => this.changesChanged(base))
      })
      $effect(() => this.requestMissing())
      $effect(() => {
        const { current } = this.documents
        if (current) untrack(() => this.documents.requestEffects(current))
      })
      $effect(() => {
        const { current } = this.conversations
        if (current) untrack(() => this.conversations.requestEffects(current))
      })
    })
  }

  close(): void {
    this.stop()
    clearTimeout(this.timer)
    this.client.close()
  }

  /** Call a function now and whenever the state it reads changes; return a function that ends this. */
  watch(callback: () => void): () => void {
    return $effect.root(() => {
      $effect(callback)
    })
  }

  readonly model: Model | undefined = $derived.by(() => this.models.find(({ name }) => name === this.state.model) ?? this.models[0])
  readonly hasChanges = $derived.by(() => this.state.changes.length > 0 || this.state.prefix.length > 0)
  readonly isClassifier = $derived.by(() => this.model?.task === 'classification')
  readonly isChatbot = $derived.by(() => this.model?.task === 'chat')
  /** What asks about the input of a model that is shown by its predictions and not by its heads. */
  readonly reader: DocumentReader | ConversationReader | null = $derived.by(() => (this.isClassifier ? this.documents : this.isChatbot ? this.conversations : null))
  /** Whether the model reads a text of its own with an encoder; a language model continues its input instead. */
  readonly hasSource = $derived.by(() => this.model?.input !== 'text')
  /** The input text of the model that is shown. */
  readonly text: string = $derived.by(() => (this.model ? this.state.inputs[this.model.input] : ''))
  /** Number of leading output tokens that are the prompt of a language model. */
  readonly prompt: number = $derived.by(() => (this.hasSource ? 0 : (this.shown?.result?.prompt ?? this.typed.length)))
  /** The input text as part of a question. */
  readonly input: Record<string, string> = $derived.by(() => (this.model ? { [this.model.input]: this.text } : {}))
  /** What the views show: the changed inspection if something was changed. */
  readonly shown = $derived.by(() => (this.hasChanges && this.altered ? this.altered : this.base))

  /** The selected kind of attention, or the closest that this model has. */
  readonly shape: PartShape | undefined = $derived.by(() => {
    const parts = this.model?.parts ?? []
    return parts.find(({ part }) => part === this.state.part) ?? parts.find(({ part }) => part === 'cross') ?? parts[0]
  })
  /** The selected part, layer and heads, within what this model has. */
  readonly attention: AttentionChoice | null = $derived.by(() => {
    const { shape, state } = this
    if (!shape) return null
    const heads = state.heads.filter((head) => head < shape.heads)
    return { part: shape.part, layer: Math.min(state.layer, shape.layers - 1), heads: heads.length ? heads : [0] }
  })
  readonly selection: Selection | null = $derived.by(() => {
    const { shown, attention, model } = this
    const { aggregate, words, specials, threshold, top } = this.state
    return shown && attention && model ? select(shown, attention, { aggregate, words, specials, threshold, top }, model.rtl) : null
  })

  /** What the pointer is on, or else what is pinned. */
  readonly focus: Focus | null = $derived.by(() => {
    if (this.hover) return this.hover
    const { selection } = this
    const { pin } = this.state
    if (!pin || !selection) return null
    const groups = pin.side === 'query' ? selection.queries.groups : selection.keys.groups
    const group = groups.findIndex(({ members }) => members.includes(pin.place))
    if (group < 0) return null
    return pin.side === 'query' ? { query: group, key: null } : { query: null, key: group }
  })

  /** Set the input text: its tokens are requested at once, the rest after a short pause. */
  type(text: string): void {
    if (!this.model) return
    this.typing = true
    this.typedAt = now()
    this.state.inputs[this.model.input] = text
    // Changes of single tokens do not apply to another text.
    if (this.state.prefix.length) this.state.prefix = []
    const general = this.state.changes.filter(({ op }) => op === 'ablate' || op === 'keep')
    if (general.length < this.state.changes.length) this.state.changes = general
    this.state.pin = null
  }

  /** Set the turns of a conversation, and the changes to them. */
  converse(turns: readonly string[], changes: Change[]): void {
    Object.assign(this.state, { changes, pin: null, target: '' })
    this.state.inputs.history = turns.join('\n')
  }

  /** Ask a question about the model that is shown. */
  ask(channel: string, question: Question, handlers: Parameters<Client['ask']>[3]): void {
    this.client.ask(channel, this.model?.name ?? null, question, handlers)
  }

  private askModels(): void {
    this.client.ask('models', null, { kind: 'models' }, {
      frame: ({ message }) => {
        this.training = null
        this.models = (message as ModelsMessage).models
        if (this.model && !this.text) this.state.inputs[this.model.input] = this.model.examples[0] ?? ''
        recordTimeWhenPainted('ready', 0)
      },
      failed: (message) => (this.failed = message),
      missing: () => (this.failed = 'This recording contains no model.'),
    })
  }

  private inputChanged(): void {
    clearTimeout(this.timer)
    const start = this.typing ? this.typedAt : now()
    if (!this.text.trim()) {
      this.clear()
      return
    }
    const { reader } = this
    const read = () => (reader ?? this).read(start)
    // While the user types, the last document stays until the next one is classified.
    for (const other of [this.documents, this.conversations]) if (!this.typing || other !== reader) other.clear()
    if (reader) Object.assign(this, { typed: [], base: null, altered: null })
    else this.askTokens(start)
    if (this.typing) this.timer = setTimeout(read, DEBOUNCE_MS)
    else read()
    this.typing = false
  }

  private clear(): void {
    for (const channel of ['tokens', 'main', 'altered']) this.client.drop(channel)
    Object.assign(this, { typed: [], base: null, altered: null, busy: false, failed: '', typing: false })
    this.documents.clear()
    this.conversations.clear()
  }

  private askTokens(start: number): void {
    this.ask('tokens', { kind: 'tokens', ...this.input }, {
      frame: ({ message }) => {
        this.typed = (message as TokensMessage).tokens
        recordTimeWhenPainted('tokens', start)
      },
    })
  }

  /** Return the question `read` for the current input, with additional fields. */
  question(more: Record<string, unknown> = {}): Question {
    const { target, beam } = this.state
    const first = this.attention ? { part: this.attention.part, layer: this.attention.layer } : undefined
    const long = this.typed.length > LONG && this.attention ? { want: this.neededParts() } : {}
    return { kind: 'read', ...this.input, beam, candidates: 8, first, ...long, ...(target ? { target } : {}), ...more }
  }

  read(start: number): void {
    this.failed = ''
    this.missing = false
    this.busy = true
    this.client.drop('altered')
    this.altered = null
    const inspection = new Inspection()
    let last = start
    this.ask('main', this.question(), {
      frame: (frame) => {
        const { kind } = frame.message
        const first = { attention: !inspection.layers.size, target: !inspection.target.length }
        inspection.add(frame)
        if (kind === 'tokens') this.base = inspection
        if (kind === 'attention' && first.attention) recordTimeWhenPainted('encoder', start)
        if (kind === 'target' || (kind === 'result' && first.target)) {
          recordTimeWhenPainted(first.target ? 'first-target' : 'next-target', first.target ? start : last)
          last = now()
        }
        if (kind === 'result') recordTimeWhenPainted('result', start)
        if (inspection.done) this.finished(inspection)
      },
      ...this.readFailures(),
    })
  }

  readFailures() {
    return {
      failed: (message: string) => {
        this.failed = message
        this.busy = false
      },
      missing: () => {
        this.missing = true
        this.busy = false
      },
    }
  }

  private finished(inspection: Inspection): void {
    this.busy = false
    if (this.fresh && inspection.facts.length) this.openMostConfident(inspection)
    if (!this.state.step && inspection.prompt) {
      // The first step of interest is the first token after the prompt.
      this.automatic = true
      this.state.step = inspection.prompt
    }
    this.fresh = false
  }

  /** Show the most confident head first, unless the URL names another. */
  private openMostConfident(inspection: Inspection): void {
    const facts = inspection.facts.filter(({ part }) => part === this.attention?.part)
    const best = facts.reduce<(typeof facts)[number] | undefined>((a, b) => (a && a.confidence >= b.confidence ? a : b), undefined)
    if (!best) return
    this.automatic = true
    Object.assign(this.state, { layer: best.layer, heads: [best.head] })
  }

  private changesChanged(base: Inspection): void {
    if (!this.hasChanges) {
      this.client.drop('altered')
      this.altered = null
      return
    }
    const start = this.changedAt || now()
    this.changedAt = 0
    const inspection = new Inspection()
    const { changes, prefix } = $state.snapshot(this.state)
    this.busy = true
    this.ask('altered', this.question({ changes, prefix, baseline: base.ids }), {
      frame: (frame) => {
        inspection.add(frame)
        if (frame.message.kind === 'result') {
          this.altered = inspection
          recordTimeWhenPainted('what-if', start)
        }
        if (inspection.done) this.busy = false
      },
      ...this.readFailures(),
    })
  }

  /** Change the computation of the model, in a way that can be undone. */
  change(next: Partial<Editable>): void {
    this.undo.save(this.editable())
    this.apply(next)
  }

  stepBack(): void {
    const before = this.undo.undo(this.editable())
    if (before) this.apply(before)
  }

  stepForward(): void {
    const after = this.undo.redo(this.editable())
    if (after) this.apply(after)
  }

  private editable(): Editable {
    return $state.snapshot({ changes: this.state.changes, prefix: this.state.prefix })
  }

  private apply(next: Partial<Editable>): void {
    this.changedAt = now()
    Object.assign(this.state, next)
    this.undoable = { undo: this.undo.canUndo, redo: this.undo.canRedo }
  }

  /** Return the parts whose weights the current view needs. */
  private neededParts(): Part[] {
    const parts = this.model?.parts.map(({ part }) => part) ?? []
    if (this.state.view === 'atlas' || !this.attention) return parts
    const { part } = this.attention
    return this.state.aggregate === 'rollout' && part === 'cross' ? parts.filter((name) => name !== 'decoder') : [part]
  }

  /** A long text arrives with one part only: request the parts that are shown now. */
  private requestMissing(): void {
    const { shown } = this
    if (!shown?.done) return
    const want = this.neededParts().filter((part) => !shown.layer(part, 0))
    if (!want.length) return
    const changes = shown === this.altered ? { changes: $state.snapshot(this.state.changes) } : {}
    this.ask('fill', { kind: 'read', ...this.input, target_ids: shown.ids, want, ...changes }, {
      frame: (frame) => ['attention', 'heads'].includes(frame.message.kind) && shown.add(frame),
    })
  }

  /** The change of the baseline's log-probability under the changes. */
  readonly baselineShift: number | null = $derived.by(() => {
    const baseline = this.altered?.result?.baseline
    return baseline && this.base ? outputLogprob(baseline.logprobs, this.base.prompt) - this.base.total : null
  })
}

const KEY = Symbol('explorer')

/** Provide the explorer to all components below. */
export function provideExplorer(explorer: Explorer): void {
  setContext(KEY, explorer)
}

/** Return the explorer that a component above provides. */
export function useExplorer(): Explorer {
  return getContext<Explorer>(KEY)
}
