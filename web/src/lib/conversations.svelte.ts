/** The conversation that a chatbot reads, and the answers to it. */

import { describeDialogueFacts, describeReplyWord, isUsers, sumOver, turnsOf, weightsAt, wordsOf, changesWithin, type DialogueFocus } from './conversation'
import { ranked, type Word } from './document'
import type { Explorer } from './explorer.svelte'
import { now, recordTimeWhenPainted } from './measures'
import type { Change, Question, ReplyEffectsMessage, ReplyMessage } from './messages'
import { isolated } from './script'
import type { Matrix } from './weights'
import type { Frame, Tensor } from './wire'

function matrix(tensor: Tensor | undefined): Matrix | null {
  return tensor ? { rows: tensor.shape[0]!, columns: tensor.shape[1]!, data: tensor.data as Float32Array } : null
}

/** A reply with its weights, and with the effects of turns and words on it, which arrive after it. */
export class ReadReply {
  /** What was asked. */
  readonly question: Question
  readonly history: readonly string[]
  readonly changes: Change[]
  readonly message: ReplyMessage
  readonly words: readonly Word[]
  /** The words of each turn that is read, by the number of the turn. */
  readonly turnWords: ReadonlyMap<number, readonly Word[]>
  readonly logprobs: Float32Array
  private readonly columns: ReadonlyMap<number, { turn: number; firstWord: number }>
  private readonly turnWeights: Matrix | null
  private readonly wordWeights: Matrix | null
  /** The change of the log-probability of each token, by `turn` or `turn.word`. */
  private effects: ReadonlyMap<string, Float32Array> = $state.raw(new Map())
  /** Whether all effects are known. */
  done = $state(false)

  constructor(question: Question, history: readonly string[], changes: Change[], { message, tensors }: Frame) {
    this.question = question
    this.history = history
    this.changes = changes
    this.message = message as ReplyMessage
    this.logprobs = tensors.get('logprobs')!.data as Float32Array
    this.turnWeights = matrix(tensors.get('turns'))
    this.wordWeights = matrix(tensors.get('words'))
    this.words = wordsOf(this.message.text, this.message.words)
    const columns = new Map<number, { turn: number; firstWord: number }>()
    let firstWord = 0
    this.message.turns.forEach(({ number, words }, turn) => {
      columns.set(number, { turn, firstWord })
      firstWord += words.length
    })
    this.columns = columns
    this.turnWords = new Map(this.message.turns.map(({ number, text, words }) => [number, wordsOf(text, words)]))
  }

  get text(): string {
    return this.message.text
  }

  addEffects({ message, tensors }: Frame): void {
    const { numbers } = message as ReplyEffectsMessage
    const data = tensors.get('change')!.data as Float32Array
    const count = this.logprobs.length
    const known = new Map(this.effects)
    numbers.forEach((place, row) => known.set([place].flat().join('.'), data.subarray(row * count, (row + 1) * count)))
    this.effects = known
    this.done = message.last
  }

  /** The number of effects that are known. */
  readonly known = $derived.by(() => this.effects.size)

  /** Return the weight of a turn, or of a word of it, for a word of the reply or on average; null if there is none. */
  weight(turn: number, word: number | null, at: number | null): number | null {
    const column = this.columns.get(turn)
    const weights = word === null ? this.turnWeights : this.wordWeights
    if (!column || !weights?.rows) return null
    return weightsAt(weights, at)[word === null ? column.turn : column.firstWord + word] ?? null
  }

  /** Return the change of the log-probability of the reply, or of a word of it, without a turn or a word, if it is known. */
  effect(turn: number, word: number | null, at: number | null): number | undefined {
    const values = this.effects.get(word === null ? String(turn) : `${turn}.${word}`)
    return values && sumOver(values, this.message.tokens, at)
  }

  /** Return the log-probability of a word of the reply, or of the whole reply. */
  logprob(at: number | null): number {
    return sumOver(this.logprobs, this.message.tokens, at)
  }

  /** All words of all turns that are read. */
  readonly places: readonly { turn: number; word: number; text: string }[] = $derived.by(() =>
    [...this.turnWords].flatMap(([turn, words]) => words.map(({ number, text }) => ({ turn, word: number, text }))),
  )

  /** Return how the page names what a log-probability is that of. */
  named(at: number | null): string {
    return at === null || !this.words[at] ? 'reply' : `'${isolated(this.words[at].text)}'`
  }

  /** Describe a turn, a word or a word of the reply in words and numbers; `at` is the word of the reply in focus. */
  describe({ turn, word }: DialogueFocus, at: number | null): string {
    const turns = this.message.turns.map(({ number }) => number)
    if (turn === null) {
      if (word === null || !this.words[word]) return ''
      const facts = turns.map((number) => ({ turn: number, weight: this.weight(number, null, word), effect: this.effect(number, null, word) }))
      return describeReplyWord(this.words[word].text, this.logprob(word), facts)
    }
    const places = word === null ? turns.map((number) => ({ turn: number, word: null })) : this.places
    const order = ranked(places.map((place) => this.weight(place.turn, place.word, at)))
    const index = places.findIndex((place) => place.turn === turn && place.word === word)
    const text = word === null ? undefined : this.turnWords.get(turn)?.[word]?.text
    const dropped = this.changes.some((change) => change.op === 'drop' && change.numbers.includes(turn))
    return describeDialogueFacts({
      turn, text, weight: this.weight(turn, word, at), rank: order.indexOf(index) + 1, count: places.length,
      absent: this.columns.has(turn) ? '' : dropped ? 'dropped' : 'not read',
      effect: this.effect(turn, word, at), of: this.named(at),
    })
  }
}

/** Asks about the conversation of a chatbot: without changes, under the changes, and about the effects on the reply. */
export class ConversationReader {
  base: ReadReply | null = $state.raw(null)
  altered: ReadReply | null = $state.raw(null)
  /** The beginning of the reply while it is generated. */
  partial = $state('')
  hover: DialogueFocus | null = $state.raw(null)
  private readonly explorer: Explorer

  constructor(explorer: Explorer) {
    this.explorer = explorer
  }

  /** The reply to the current changes, once it is here; its effects are wanted. */
  readonly current: ReadReply | null = $derived.by(() => {
    const reply = this.explorer.hasChanges ? this.altered : this.base
    return reply && JSON.stringify(reply.changes) === JSON.stringify(this.explorer.state.changes) ? reply : null
  })
  /** What the page shows: the reply under the changes if there are any; the last one until the next one is here, if it comes. */
  readonly shown: ReadReply | null = $derived.by(() => {
    const { hasChanges, missing, failed } = this.explorer
    return missing || failed ? this.current : hasChanges && this.altered ? this.altered : this.base
  })
  readonly turns: readonly string[] = $derived.by(() => turnsOf(this.explorer.text))
  /** The word of the reply that is pinned. */
  readonly pinned: number | null = $derived.by(() => {
    const { pin } = this.explorer.state
    return pin?.side === 'query' && this.shown && pin.place < this.shown.words.length ? pin.place : null
  })
  /** The word of the reply under the pointer, or else the pinned one. */
  readonly at: number | null = $derived.by(() => (this.hover?.turn === null && this.hover.word !== null ? this.hover.word : this.pinned))
  readonly focusLine: string = $derived.by(() => {
    const focus = this.hover ?? (this.pinned === null ? null : { turn: null, word: this.pinned })
    return focus && this.shown ? this.shown.describe(focus, this.at) : ''
  })

  isUsers(turn: number): boolean {
    return isUsers(turn, this.turns.length)
  }

  /** Forget the reply. */
  clear(): void {
    Object.assign(this, { base: null, altered: null, hover: null, partial: '' })
  }

  /** Add the reply and the user's next turn to the conversation. */
  say(text: string): void {
    const line = text.split(/\s+/).filter(Boolean).join(' ')
    if (!line) return
    const before = this.turns.length && this.shown?.text ? [...this.turns, this.shown.text] : []
    this.explorer.converse([...before, line], this.explorer.state.changes)
  }

  /** Keep only the first turns of the conversation. */
  keep(count: number): void {
    this.explorer.converse(this.turns.slice(0, count), changesWithin(this.explorer.state.changes, count))
  }

  /** Reply to the conversation as it is. */
  read(start: number): void {
    this.ask([], (reply) => {
      Object.assign(this, { base: reply, altered: null, hover: null })
      recordTimeWhenPainted('result', start)
    })
  }

  /** Reply to the conversation under the changes, if there are any. */
  change(): void {
    const { base, explorer } = this
    const changes = $state.snapshot(explorer.state.changes)
    // The answer to a new conversation is on its way, and the changes will be applied to it.
    if (base?.history.join('\n') !== explorer.text) return
    if (!explorer.hasChanges) {
      explorer.client.drop('main')
      Object.assign(explorer, { busy: false, failed: '', missing: false })
      Object.assign(this, { altered: null, partial: '' })
      return
    }
    const start = now()
    this.ask(changes, (reply) => {
      this.altered = reply
      recordTimeWhenPainted('what-if', start)
    })
  }

  /** Ask for the effects that a reply lacks. */
  requestEffects(reply: ReadReply): void {
    if (reply.done) return
    const { explorer } = this
    const { history, changes, turns } = reply.question
    const asked = { history, ...(changes ? { changes } : {}), ...(turns ? { turns } : {}), reply: reply.text }
    explorer.ask('main', { kind: 'reply_effects', ...asked }, { ...explorer.readFailures(), frame: (frame) => reply.addEffects(frame) })
  }

  /** Ask for a reply. All questions have one channel, so that a newer one ends the computation of effects that nobody waits for. */
  private ask(changes: Change[], answered: (reply: ReadReply) => void): void {
    const { explorer } = this
    const { turns, beam, seed, temperature, target } = explorer.state
    const history = [...this.turns]
    const method = target ? { reply: target } : seed === null ? { beam } : { seed, temperature }
    const question = { kind: 'reply', history, ...(changes.length ? { changes } : {}), ...(turns ? { turns } : {}), ...method }
    Object.assign(explorer, { failed: '', missing: false, busy: true })
    this.partial = ''
    explorer.ask('main', question, {
      ...explorer.readFailures(),
      frame: (frame) => {
        if (frame.message.kind === 'partial') this.partial = (frame.message as ReplyMessage).text
        else {
          explorer.busy = false
          this.partial = ''
          answered(new ReadReply(question, history, changes, frame))
        }
      },
    })
  }
}
