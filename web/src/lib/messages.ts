/** What is asked and answered: the questions of the page, and the messages in the frames that answer them. */

import type { Message } from './wire'

export type Part = 'encoder' | 'decoder' | 'cross'
export type Family = 'transformer' | 'sutskever' | 'bahdanau' | 'luong' | 'convs2s'

export interface PartShape {
  part: Part
  layers: number
  heads: number
}

export interface Model {
  name: string
  family: Family
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
  nodes: BeamNode[]
  best: number[]
  finished: { node: number; text: string; score: number }[]
}

export interface MathsMessage extends Message {
  stages: Stage[]
  query: number
  keys: Token[]
  d_k: number
}

export interface PositionsMessage extends Message {
  kind_of_model: string
}

export interface FigureMessage extends Message {
  name: string
  type: string
  python: string
}

export interface ErrorMessage extends Message {
  message: string
}

/** A first model is being trained: what is going on, and how much of it is done (0 to 1, where known). */
export interface MakingMessage extends Message {
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

/** A question as it travels: numbered, with the channel in which a newer one makes it stale. */
export interface Numbered extends Question {
  id: number
  channel: string
  model: string | null
}
