/** A transport that answers questions with synthetic frames, for tests and for development without a server. */

import type { BeamNode, Model, Numbered, Part, Token } from './messages'
import type { Listener, Transport } from './transport'
import type { Numbers } from './wire'

interface Given {
  dtype: 'U8' | 'I32' | 'F32'
  shape: number[]
  data: Numbers
}

/** Encode a frame. */
export function writeFrame(message: object, tensors: Record<string, Given> = {}): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: { message: JSON.stringify(message) } }
  let end = 0
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [end, end + data.byteLength] }
    end += data.byteLength
  }
  const text = new TextEncoder().encode(JSON.stringify(header))
  const bytes = new Uint8Array(8 + text.length + end)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true)
  bytes.set(text, 8)
  let at = 8 + text.length
  for (const { data } of Object.values(tensors)) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at)
    at += data.byteLength
  }
  return bytes
}

const END: Token = { piece: '</s>', text: '</s>', id: 2, word: null, special: true }

const parts = (layers: number, heads: number) => (['encoder', 'decoder', 'cross'] as Part[]).map((part) => ({ part, layers, heads }))

export const MODELS: Model[] = [
  {
    name: 'mock-de', task: 'translation', input: 'source', family: 'transformer', parts: parts(6, 8), width: 512, vocabulary: 8000, parameters: 44_000_000,
    source_language: 'en', target_language: 'de', rtl: { source: false, target: false },
    examples: ['the animal did not cross the street because it was too tired', 'I saw a cat on a mat'],
    longest: 512, learned_positions: false,
  },
  {
    name: 'mock-ar', task: 'translation', input: 'source', family: 'transformer', parts: parts(3, 4), width: 256, vocabulary: 8000, parameters: 9_000_000,
    source_language: 'en', target_language: 'ar', rtl: { source: false, target: true }, examples: ['I can go alone'],
    longest: 512, learned_positions: true,
  },
  {
    name: 'bahdanau', task: 'translation', input: 'source', family: 'bahdanau', parts: [{ part: 'cross', layers: 1, heads: 1 }], width: 256, vocabulary: 8000,
    parameters: 9_000_000, rtl: { source: false, target: false }, examples: ['I am a student'], longest: 512, learned_positions: false,
  },
  {
    name: 'sutskever', task: 'translation', input: 'source', family: 'sutskever', parts: [], width: 256, vocabulary: 8000, parameters: 9_000_000,
    rtl: { source: false, target: false }, examples: ['I am a student'], longest: 512, learned_positions: false,
  },
  {
    name: 'mock-lm', task: 'language_model', input: 'text', family: 'transformer', parts: [{ part: 'decoder', layers: 2, heads: 4 }], width: 256,
    vocabulary: 8000, parameters: 9_000_000, rtl: { source: false, target: false }, examples: ['The cat sat'], longest: 512, learned_positions: true,
  },
]

const ARABIC: [string, number][] = [['أست', 0], ['طيع', 0], ['الذ', 1], ['هاب', 1], ['وحي', 2], ['داً', 2]]

/** Tokenize a text: long words become two tokens. */
export function cut(text: string): Token[] {
  const tokens = text.split(/\s+/).filter(Boolean).flatMap((word, place): Token[] => {
    const pieces = word.length > 5 ? [word.slice(0, 4), word.slice(4)] : [word]
    return pieces.map((piece, i) => ({
      piece: (i ? '' : '▁') + piece, text: piece, id: 10 + [...piece].reduce((sum, letter) => sum + letter.charCodeAt(0), 0),
      word: place, special: false,
    }))
  })
  return [...tokens, END]
}

/** A language model repeats its prompt backwards, a translator reverses every word. */
function targetOf(model: Model, source: Token[]): Token[] {
  if (model.input === 'text') return [...source, ...[...source].reverse(), END]
  if (model.rtl.target) {
    return [...ARABIC.map(([text, word], i): Token => ({ piece: text, text, id: 500 + i, word, special: false })), END]
  }
  return source.map((token) => (token.special ? token : { ...token, text: token.text.split('').reverse().join('') }))
}

function weights(queries: number, keys: number, heads: number, layer: number, causal: boolean): Uint8Array {
  const data = new Uint8Array(heads * queries * keys)
  for (let head = 0; head < heads; head++) {
    for (let query = 0; query < queries; query++) {
      const centre = (query * keys) / queries + ((head % 5) - 2)
      const spread = 0.4 + ((head * 7 + layer * 3) % 8)
      const row = Array.from({ length: keys }, (_, key) =>
        causal && key > query ? 0 : Math.exp(-(((key - centre) / spread) ** 2)) + 1e-3 + (key === keys - 1 ? 0.2 : 0),
      )
      const sum = row.reduce((a, b) => a + b, 0)
      row.forEach((weight, key) => (data[(head * queries + query) * keys + key] = Math.round(255 * Math.sqrt(weight / sum))))
    }
  }
  return data
}

/** A transport without a server. */
export class MockTransport implements Transport {
  readonly live = true
  readonly asked: Numbered[] = []
  private listener: Listener | null = null
  private readonly pause: number

  constructor(pause = 0) {
    this.pause = pause
  }

  open(listener: Listener): void {
    this.listener = listener
    queueMicrotask(() => listener.connection('open'))
  }

  send(question: Numbered): void {
    this.asked.push(question)
    const frames = [...answers(question)]
    frames.forEach((frame, i) => setTimeout(() => this.listener?.frame(frame), this.pause * i))
  }

  close(): void {
    this.listener = null
  }
}

function* answers(question: Numbered): Generator<Uint8Array> {
  const { id } = question
  const model = MODELS.find(({ name }) => name === question.model) ?? MODELS[0]!
  const text = (question[model.input] as string | undefined) ?? ''
  const source = model.input === 'text' ? cut(text).slice(0, -1) : cut(text)
  switch (question.kind) {
    case 'models':
      yield writeFrame({ id, kind: 'models', last: true, models: MODELS })
      break
    case 'tokens':
      yield writeFrame({ id, kind: 'tokens', last: true, tokens: source, words: [] })
      break
    case 'read':
      yield* inspection(id, model, source)
      break
    case 'beam':
      yield writeFrame({ id, kind: 'beam', last: true, ...beam(model, source) })
      break
    default:
      yield writeFrame({ id, kind: 'error', last: true, message: `The mock model cannot answer '${question.kind}'.` })
  }
}

function* inspection(id: number, model: Model, source: Token[]): Generator<Uint8Array> {
  const target = targetOf(model, source)
  yield writeFrame({ id, kind: 'tokens', last: false, tokens: source })
  for (let i = 1; i <= target.length; i++) yield writeFrame({ id, kind: 'target', last: false, tokens: target.slice(0, i) })
  const candidates = target.map((token, i) =>
    Array.from({ length: 8 }, (_, k) => ({ id: token.id + k, piece: token.piece, text: k ? `${token.text}${k}` : token.text, logprob: -0.1 - k * 1.3 - i * 0.02 })),
  )
  yield writeFrame({
    id, kind: 'result', last: false, source, target, text: target.slice(0, -1).map(({ text }) => text).join(' '), score: -0.21,
    logprobs: target.map((_, i) => -0.1 - (i % 3) * 0.2), prompt: model.input === 'text' ? source.length : 0, words: { source: [], target: [] }, alignment: '0-0', candidates, baseline: null,
  })
  const facts = []
  for (const { part, layers, heads } of model.parts) {
    const queries = part === 'encoder' ? source.length : target.length
    const keys = part === 'decoder' ? target.length : source.length
    for (let layer = 0; layer < layers; layer++) {
      const data = weights(queries, keys, heads, layer, part === 'decoder')
      yield writeFrame(
        { id, kind: 'attention', last: false, part, layer, heads, queries, keys },
        { weights: { dtype: 'U8', shape: [heads, queries, keys], data } },
      )
      for (let head = 0; head < heads; head++) {
        facts.push({ part, layer, head, confidence: 0.1 + ((head * 5 + layer * 3) % 9) / 10, entropy: head / 4, distance: layer })
      }
    }
  }
  yield writeFrame({ id, kind: 'heads', last: true, heads: facts })
}

function beam(model: Model, source: Token[]): { prompt: number[]; nodes: BeamNode[]; best: number[]; finished: object[] } {
  const prompt = model.input === 'text' ? source.map(({ id }) => id) : []
  const target = targetOf(model, source).slice(prompt.length)
  const nodes: BeamNode[] = []
  const best: number[] = []
  let parent: number | null = null
  target.forEach((token, place) => {
    for (let rank = 1; rank <= 4; rank++) {
      const fate = rank > 2 ? 'pruned' : rank === 2 ? 'stopped' : token.special ? 'ended' : 'kept'
      nodes.push({
        parent, id: token.id + rank, piece: token.piece, text: rank > 1 ? `${token.text}${rank}` : token.text, place,
        logprob: -0.3 * rank, total: -0.3 * rank - place * 0.2, score: -0.3 * rank - place * 0.02, rank, fate,
      })
    }
    parent = nodes.length - 4
    best.push(parent)
  })
  return { prompt, nodes, best, finished: [{ node: best[best.length - 1]!, text: 'mock', score: -0.3 }] }
}
