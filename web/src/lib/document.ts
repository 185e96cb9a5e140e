/** A classified text: its sentences and words, what was erased from it, and how erasing changes probabilities. */

import type { DocumentMessage, Level, WeightedSpan } from './messages'
import { isolated } from './script'
import { decimal } from './selection'

/** A word of a sentence, with what stands between it and the word before it, such as a space. */
export interface Word {
  number: number
  text: string
  before: string
}

/** The sentence or word under the pointer or the keyboard cursor. */
export interface DocumentFocus {
  level: Level
  number: number
}

/** Return the words of each sentence of a text. */
export function wordsBySentence(text: string, { sentences, words }: Pick<DocumentMessage, 'sentences' | 'words'>): Word[][] {
  return sentences.map(([begin, end]) => {
    let last = begin
    return words.flatMap(([start, stop], number): Word[] => {
      if (start < begin || start >= end) return []
      const before = text.slice(last, start)
      last = stop
      return [{ number, text: text.slice(start, stop), before: before.trim() ? before : before && ' ' }]
    })
  })
}

/** Return the end of a text that the model does not read, because the text is too long. */
export function unreadEnd(text: string, words: readonly WeightedSpan[]): string {
  return text.slice(words[words.length - 1]?.[1] ?? 0).trim()
}

/** Return the largest weight of some spans. */
export function largestWeight(spans: readonly WeightedSpan[]): number {
  return Math.max(0, ...spans.map(([, , weight]) => weight ?? 0))
}

/** Return the numbers of the spans in the order of their values, the largest absolute value first; those without one are left out. */
export function ranked(values: readonly (number | null | undefined)[]): number[] {
  const size = (number: number) => Math.abs(values[number]!)
  return values.flatMap((value, number) => (value === null || value === undefined ? [] : [number])).sort((a, b) => size(b) - size(a))
}

/** Format a change of a probability with its sign. */
export function signed(change: number, places = 2): string {
  const text = decimal(change, places)
  return change > 0 && Number(text) !== 0 ? `+${text}` : text
}

/** Format a change of a probability with its sign; a small one is not shown as zero. */
export function signedSmall(change: number): string {
  return `${change > 0 ? '+' : ''}${small(change)}`
}

/** Format a weight or probability; a small one is not shown as zero. */
export function small(value: number): string {
  return value !== 0 && Math.abs(value) < 0.0005 ? value.toExponential(1).replaceAll('-', '−') : decimal(value, 3)
}

/** What is known about a sentence or word. */
export interface Facts {
  level: Level
  number: number
  text: string
  weight: number | null
  /** Place of the weight among all of its level, from 1, and their number. */
  rank: number
  count: number
  erased: boolean
  /** The change of the probability of a class if this part is erased; undefined until it is known. */
  effect: number | undefined
  label: string
}

/** Describe a sentence or word: «word 'dull', weight 0.212, rank 1 of 14; without it, p(negative) changes by −0.431». */
export function describeFacts({ level, number, text, weight, rank, count, erased, effect, label }: Facts): string {
  const name = level === 'word' ? `word '${isolated(text)}'` : `sentence ${number + 1}`
  if (erased) return `${name}, erased`
  const weighed = weight === null ? '' : `, weight ${small(weight)}, rank ${rank} of ${count}`
  const without = effect === undefined ? '' : `; without it, p(${isolated(label)}) changes by ${signedSmall(effect)}`
  return name + weighed + without
}
