/** The text that a classifier reads, and the answers to it. */

import { describeFacts, ranked, type DocumentFocus } from './document'
import type { Explorer } from './explorer.svelte'
import { now, recordTimeWhenPainted } from './measures'
import type { Change, DocumentMessage, EffectsMessage, Level } from './messages'
import type { Frame } from './wire'

/** A classified text, with the effects of erasing its parts, which arrive after it. */
export class ClassifiedDocument {
  /** The whole text, whatever is erased. */
  readonly text: string
  readonly changes: Change[]
  readonly message: DocumentMessage
  private readonly classes: readonly string[]
  /** The change of the probability of each class if a part is erased, by the number of the part. */
  private effects: Record<Level, ReadonlyMap<number, Float32Array>> = $state.raw({ sentence: new Map(), word: new Map() })
  /** Whether all effects are known. */
  done = $state(false)

  constructor(text: string, changes: Change[], message: DocumentMessage, classes: readonly string[]) {
    this.text = text
    this.changes = changes
    this.message = message
    this.classes = classes
  }

  addEffects({ message, tensors }: Frame): void {
    const { level, numbers } = message as EffectsMessage
    const data = tensors.get('change')!.data as Float32Array
    const count = this.classes.length
    const known = new Map(this.effects[level])
    numbers.forEach((number, row) => known.set(number, data.subarray(row * count, (row + 1) * count)))
    this.effects = { ...this.effects, [level]: known }
    this.done = message.last
  }

  /** Return the change of the probability of a class if a part is erased, if it is known. */
  effect(level: Level, number: number, label: string): number | undefined {
    return this.effects[level].get(number)?.[this.classes.indexOf(label)]
  }

  /** Return the numbers of parts whose effects are known. */
  known(level: Level): number {
    return this.effects[level].size
  }

  /** Return the spans of a level. */
  spans(level: Level): DocumentMessage['words'] {
    return level === 'word' ? this.message.words : this.message.sentences
  }

  readonly erasedWords: ReadonlySet<number> = $derived.by(() => new Set(this.message.erased))

  /** The numbers of the parts with a weight, the largest weight first. */
  private readonly order: Record<Level, number[]> = $derived.by(() => ({
    sentence: ranked(this.message.sentences.map(([, , weight]) => weight)),
    word: ranked(this.message.words.map(([, , weight]) => weight)),
  }))

  /** Return whether a part is erased: a word, or a sentence with all of its words. */
  isErased(level: Level, number: number): boolean {
    if (level === 'word') return this.erasedWords.has(number)
    const [begin, end] = this.message.sentences[number]!
    const inside = this.message.words.flatMap(([start], word) => (start >= begin && start < end ? [word] : []))
    return inside.length > 0 && inside.every((word) => this.erasedWords.has(word))
  }

  /** Describe a part in words and numbers. */
  describe({ level, number }: DocumentFocus, label: string): string {
    const spans = this.spans(level)
    const span = spans[number]
    if (!span) return ''
    const order = this.order[level]
    return describeFacts({
      level, number, text: this.text.slice(span[0], span[1]), weight: span[2], rank: order.indexOf(number) + 1, count: order.length,
      erased: this.isErased(level, number), effect: this.effect(level, number, label), label,
    })
  }
}

/** Asks about the text of a classifier: without changes, under the changes, and about the effects of erasing. */
export class DocumentReader {
  base: ClassifiedDocument | null = $state.raw(null)
  altered: ClassifiedDocument | null = $state.raw(null)
  hover: DocumentFocus | null = $state.raw(null)
  private readonly explorer: Explorer

  constructor(explorer: Explorer) {
    this.explorer = explorer
  }

  /** What the page shows: the text under the changes if there are any. */
  readonly shown: ClassifiedDocument | null = $derived.by(() => (this.explorer.hasChanges && this.altered ? this.altered : this.base))
  /** The class whose probability is compared: the chosen one, or the most probable one of the whole text. */
  readonly label: string = $derived.by(() => {
    const { label } = this.explorer.state
    const classes = Object.keys(this.base?.message.probabilities ?? {})
    return classes.includes(label) ? label : (classes[0] ?? '')
  })
  /** The words of the text. */
  readonly words: readonly string[] = $derived.by(() => this.base?.message.words.map(([start, end]) => this.base!.text.slice(start, end)) ?? [])
  readonly focusLine: string = $derived.by(() => (this.hover && this.shown ? this.shown.describe(this.hover, this.label) : ''))

  /** Forget the text. */
  clear(): void {
    Object.assign(this, { base: null, altered: null, hover: null })
  }

  /** Classify the text as it is. */
  read(start: number): void {
    this.ask([], (document) => {
      Object.assign(this, { base: document, altered: null, hover: null })
      recordTimeWhenPainted('result', start)
    })
  }

  /** Classify the text under the changes, if there are any. */
  change(): void {
    const { base, explorer } = this
    const changes = $state.snapshot(explorer.state.changes)
    // The answer to a new text is on its way, and the changes will be applied to it.
    if (base?.text !== explorer.text) return
    if (!explorer.hasChanges) {
      explorer.client.drop('main')
      Object.assign(explorer, { busy: false, failed: '', missing: false })
      this.altered = null
      return
    }
    const start = now()
    this.ask(changes, (document) => {
      this.altered = document
      recordTimeWhenPainted('what-if', start)
    })
  }

  /** The document whose effects are wanted: that of the current changes, once it is here. */
  readonly current: ClassifiedDocument | null = $derived.by(() => {
    const document = this.explorer.hasChanges ? this.altered : this.base
    return document && JSON.stringify(document.changes) === JSON.stringify(this.explorer.state.changes) ? document : null
  })

  /** Ask for the effects that a document lacks. */
  requestEffects(document: ClassifiedDocument): void {
    if (document.done) return
    const { explorer } = this
    explorer.ask('main', { kind: 'effects', text: document.text, ...named(document.changes) }, {
      ...explorer.readFailures(),
      frame: (frame) => document.addEffects(frame),
    })
  }

  /** Ask a question. All have one channel, so that a newer one ends the computation of effects that nobody waits for. */
  private ask(changes: Change[], answered: (document: ClassifiedDocument) => void): void {
    const { explorer } = this
    const { text, model } = explorer
    Object.assign(explorer, { failed: '', missing: false, busy: true })
    explorer.ask('main', { kind: 'classify', text, ...named(changes) }, {
      ...explorer.readFailures(),
      frame: ({ message }) => {
        explorer.busy = false
        answered(new ClassifiedDocument(text, changes, message as DocumentMessage, model?.classes ?? []))
      },
    })
  }
}

function named(changes: Change[]): { changes?: Change[] } {
  return changes.length ? { changes } : {}
}
