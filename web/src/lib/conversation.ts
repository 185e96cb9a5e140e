/** A conversation with a chatbot: its turns, the weights of a reply on them, and the effects of leaving them out. */

import { diffTokens } from './diff'
import { signedSmall, small, wordsBySentence, type Word } from './document'
import type { Change, ReplyMessage, Span } from './messages'
import { isolated } from './script'
import { decimal } from './selection'
import type { Matrix } from './weights'

/** A turn, or a word of it, under the pointer or the keyboard cursor; without a turn, a word of the reply. */
export interface DialogueFocus {
  turn: number | null
  word: number | null
}

/** Return the turns of a conversation, which has one on each line. */
export function turnsOf(text: string): string[] {
  return text ? text.split('\n') : []
}

/** Return whether the user speaks in a turn: the last one is the user's, and the two alternate. */
export function isUsers(turn: number, count: number): boolean {
  return (count - 1 - turn) % 2 === 0
}

/** Return the words of a turn or a reply. */
export function wordsOf(text: string, spans: readonly Span[]): Word[] {
  return wordsBySentence(text, { sentences: [[0, text.length, null]], words: spans.map(([start, end]) => [start, end, null]) })[0]!
}

/** Return the weights of one word of the reply, or their mean over all words. */
export function weightsAt(matrix: Matrix, word: number | null): Float32Array {
  const { rows, columns, data } = matrix
  if (word !== null && word < rows) return data.subarray(word * columns, (word + 1) * columns)
  const means = new Float32Array(columns)
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) means[column]! += data[row * columns + column]! / rows
  return means
}

/** Return the sum over the tokens of one word of the reply, or over all of its tokens and the end symbol. */
export function sumOver(values: Float32Array, tokens: ReplyMessage['tokens'], word: number | null): number {
  return tokens.reduce((sum, token, index) => (word === null || token.word === word ? sum + values[index]! : sum), 0)
}

/** Drop a turn, or put it back if it is dropped. */
export function toggleDropped(changes: readonly Change[], number: number): Change[] {
  const dropped = changes.flatMap((change) => (change.op === 'drop' ? change.numbers : []))
  const numbers = dropped.includes(number) ? dropped.filter((other) => other !== number) : [...dropped, number].sort((a, b) => a - b)
  const others = changes.filter(({ op }) => op !== 'drop')
  return numbers.length ? [...others, { op: 'drop', numbers }] : others
}

/** Replace the text of a turn; its own text takes the change back. */
export function editTurn(changes: readonly Change[], number: number, text: string, original: string): Change[] {
  const others = changes.filter((change) => change.op !== 'edit' || change.number !== number)
  const line = text.split(/\s+/).filter(Boolean).join(' ')
  // Drops come last, so that a turn that is edited and dropped is dropped.
  return !line || line === original ? others : [{ op: 'edit', number, text: line }, ...others]
}

/** Return the turns under changes; a dropped turn is empty, so that the speakers of the others stay the same. */
export function effectiveTurns(turns: readonly string[], changes: readonly Change[]): string[] {
  return turns.map((turn, number) =>
    changes.reduce((text, change) => {
      if (change.op === 'drop') return change.numbers.includes(number) ? '' : text
      return change.op === 'edit' && change.number === number ? change.text : text
    }, turn),
  )
}

/** Return the changes that still apply if only the first turns are kept. */
export function changesWithin(changes: readonly Change[], count: number): Change[] {
  return changes.flatMap((change): Change[] => {
    if (change.op === 'edit') return change.number < count ? [change] : []
    if (change.op !== 'drop') return [change]
    const numbers = change.numbers.filter((number) => number < count)
    return numbers.length ? [{ ...change, numbers }] : []
  })
}

/** A word of a reply beside an earlier reply: one of the two texts has it, or both. */
export interface ComparedWord {
  /** The number of the word in the reply; null if only the earlier one has it. */
  number: number | null
  text: string
  isNew: boolean
}

/** Return the words of a reply, with those of an earlier one that it lacks; where both have some, the earlier ones stand first. */
export function compareReplies(before: readonly string[], after: readonly string[]): ComparedWord[] {
  const words: ComparedWord[] = []
  let come: ComparedWord[] = []
  for (const step of diffTokens(before, after)) {
    if (step.op === 'same') {
      words.push(...come, { number: step.after, text: after[step.after]!, isNew: false })
      come = []
    }
    if (step.op === 'removed' || step.op === 'replaced') words.push({ number: null, text: before[step.before]!, isNew: false })
    if (step.op === 'added' || step.op === 'replaced') come.push({ number: step.after, text: after[step.after]!, isNew: true })
  }
  return [...words, ...come]
}

/** What is known about a turn or a word of it. */
export interface DialogueFacts {
  turn: number
  /** The word, if it is one. */
  text: string | undefined
  weight: number | null
  rank: number
  count: number
  /** Why the turn has no weight and no effect; empty if it is read. */
  absent: '' | 'dropped' | 'not read'
  /** The change of the log-probability if this part is left out; undefined until it is known. */
  effect: number | undefined
  /** What the log-probability is that of: the reply, or a word of it in quotes. */
  of: string
}

/** Describe a part of a conversation: «turn 1, word 'Anna', weight 0.212, rank 1 of 14; without it, log p(reply) changes by −3.100». */
export function describeDialogueFacts({ turn, text, weight, rank, count, absent, effect, of }: DialogueFacts): string {
  const name = `turn ${turn + 1}${text === undefined ? '' : `, word '${isolated(text)}'`}`
  if (absent) return `${name}, ${absent}`
  const weighed = weight === null ? '' : `, weight ${small(weight)}, rank ${rank} of ${count}`
  const without = effect === undefined ? '' : `; without it, log p(${of}) changes by ${signedSmall(effect)}`
  return name + weighed + without
}

/** Describe a word of a reply: «'Anna', p 0.930; attends to turn 1 0.710, turn 3 0.200; without turn 1, its log p changes by −2.310». */
export function describeReplyWord(text: string, logprob: number, turns: readonly { turn: number; weight: number | null; effect: number | undefined }[]): string {
  const name = `'${isolated(text)}', p ${decimal(Math.exp(logprob), 3)}`
  const attended = turns.filter(({ weight }) => weight !== null).sort((a, b) => b.weight! - a.weight!).slice(0, 3)
  const weights = attended.length ? `; attends to ${attended.map(({ turn, weight }) => `turn ${turn + 1} ${small(weight!)}`).join(', ')}` : ''
  const known = turns.filter(({ effect }) => effect !== undefined)
  const most = attended.length ? known.find(({ turn }) => turn === attended[0]!.turn) : known.sort((a, b) => Math.abs(b.effect!) - Math.abs(a.effect!))[0]
  return name + weights + (most ? `; without turn ${most.turn + 1}, its log p changes by ${signedSmall(most.effect!)}` : '')
}
