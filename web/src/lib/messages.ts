/** Types of the explorer's protocol: questions, and the messages in the frames that answer them. */

import type { Message } from './wire'

/** Encoder self-attention, decoder self-attention, or cross-attention. */
export type Part = 'encoder' | 'decoder' | 'cross'
export type Task = 'translation' | 'language_model' | 'classification' | 'chat'
/** What a classifier pools with attention weights, and what can be erased from a text. */
export type Level = 'sentence' | 'word'
/** Name of a model's input; a history has a turn on each line. */
export type InputField = 'source' | 'text' | 'history'
/** Begin and end in a text. */
export type Span = [start: number, end: number]

export interface PartShape {
  part: Part
  layers: number
  heads: number
}

export interface Model {
  name: string
  task: Task
  input: InputField
  /** The architecture, as in the recipe, if it is known. */
  family: string | null
  /** The kinds of attention that the model has. */
  parts: PartShape[]
  width: number
  vocabulary: number
  parameters: number
  source_language?: string | null
  target_language?: string | null
  rtl: { source: boolean; target: boolean }
  examples: string[]
  longest: number
  learned_positions: boolean
  /** Of a classifier: its classes, and whether a text may have several of them. */
  classes?: string[]
  several?: boolean
  /** What a classifier or a chatbot has attention weights of. */
  levels?: (Level | 'turn')[]
  /** The number of turns that a chatbot reads. */
  turns?: number
}

export interface Token {
  piece: string
  text: string
  id: number
  word: number | null
  special: boolean
  span?: [number, number] | null
}

export interface Candidate {
  id: number
  piece: string
  text: string
  logprob: number
}

export interface HeadFacts {
  part: Part
  layer: number
  head: number
  confidence: number
  entropy: number
  distance: number
}

export interface BeamNode {
  parent: number | null
  id: number
  piece: string
  text: string
  place: number
  logprob: number
  total: number
  score: number
  rank: number
  fate: Fate
}

export type Fate = 'kept' | 'ended' | 'pruned' | 'stopped'

export interface Stage {
  name: string
  formula: string
  shape: number[]
  tensor: string
  note: string
}

export type Change =
  | { op: 'ablate'; part: Part; layer: number; heads: number[]; how: 'zero' | 'mean' | 'uniform' }
  | { op: 'keep'; part: Part; layer: number; heads: number[] }
  | { op: 'block'; tokens: number[] }
  | { op: 'row'; part: Part; layer: number; head: number; query: number; weights: number[] }
  | { op: 'erase'; level: Level; numbers: number[] }
  | { op: 'drop'; numbers: number[] }
  | { op: 'edit'; number: number; text: string }

export interface ModelsMessage extends Message {
  models: Model[]
}

export interface TokensMessage extends Message {
  tokens: Token[]
}

export interface ResultMessage extends Message {
  source: Token[]
  target: Token[]
  text: string
  score: number
  logprobs: number[]
  /** How many tokens of the target are the prompt of a language model; 0 for a translation. */
  prompt: number
  words: { source: string[]; target: string[] }
  alignment: string | null
  candidates: Candidate[][]
  baseline: { logprobs: number[] } | null
}

export interface AttentionMessage extends Message {
  part: Part
  layer: number
  heads: number
  queries: number
  keys: number
}

export interface HeadsMessage extends Message {
  heads: HeadFacts[]
}

export interface BeamMessage extends Message {
  /** Ids that every hypothesis begins with, before the nodes: the prompt of a language model. */
  prompt: number[]
  nodes: BeamNode[]
  best: number[]
  finished: { node: number; text: string; score: number }[]
}

export interface MathsMessage extends Message {
  stages: Stage[]
  query: number
  keys: Token[]
}

export interface PositionsMessage extends Message {
  kind_of_model: string
}

/** Begin and end of a sentence or word in the whole text, and its attention weight, if it has one. */
export type WeightedSpan = [start: number, end: number, weight: number | null]

export interface DocumentMessage extends Message {
  /** The text that was classified, without what is erased. */
  text: string
  label: string
  labels: string[]
  probability: number
  /** The most probable class first. */
  probabilities: Record<string, number>
  sentences: WeightedSpan[]
  words: WeightedSpan[]
  /** Numbers of the words that are erased. */
  erased: number[]
}

/** Of some sentences or words; the frame has the change of the probability of each class if one of them is erased. */
export interface EffectsMessage extends Message {
  level: Level
  numbers: number[]
}

export interface ReplyMessage extends Message {
  text: string
  logprob: number
  /** Of the reply, and the end symbol; `word` is the number of the word that a token belongs to. */
  tokens: { piece: string; text: string; word: number | null }[]
  words: Span[]
  /** The turns that are read, with the spans of their words. */
  turns: { number: number; text: string; words: Span[] }[]
  /** Whether the reply was given in the question. */
  given: boolean
}

/** Of some turns, or of words as pairs of turn and word; the frame has the change of the log-probability of each token without them. */
export interface ReplyEffectsMessage extends Message {
  level: 'turn' | 'word'
  numbers: (number | [turn: number, word: number])[]
}

export interface FigureMessage extends Message {
  name: string
  type: string
  python: string
}

export interface ErrorMessage extends Message {
  message: string
}

/** Progress of training a first model; `done` runs from 0 to 1 where it is known. */
export interface TrainingMessage extends Message {
  message?: string
  step?: number
  steps?: number
  done?: number | null
  loss?: number | null
  sample?: { source: string; translation: string } | null
}

export interface Question {
  kind: string
  [detail: string]: unknown
}

/** A question with its id, and its channel: a newer question in the same channel makes it stale. */
export interface Numbered extends Question {
  id: number
  channel: string
  model: string | null
}
