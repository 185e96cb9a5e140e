/** The numbers of one query, put in order: which stages belong together, and one key's number worked out in full. */

import type { MathsMessage, Stage } from './messages'
import type { Tensor } from './wire'

export type Tensors = ReadonlyMap<string, Tensor>

export interface Act {
  title: string
  stages: Stage[]
}

const ACTS: { title: string; names: string[] }[] = [
  { title: 'A token becomes a vector', names: ['embedding', 'position', 'sum', 'stream', 'entered'] },
  { title: 'What is asked, and what answers', names: ['query', 'keys', 'q', 'k', 'v', 'projected_query', 'projected_keys', 'outer'] },
  { title: 'How well they fit', names: ['scores', 'energies', 'mask', 'masked', 'weights'] },
  { title: 'What is brought back', names: ['mixed', 'context', 'joined', 'output', 'residual', 'normed', 'state', 'vector'] },
]

/** The stages under four headings; one that no heading knows stands under that of its neighbour before it. */
export function acts(stages: readonly Stage[]): Act[] {
  const result = ACTS.map(({ title }): Act => ({ title, stages: [] }))
  let current = 0
  for (const stage of stages) {
    const found = ACTS.findIndex(({ names }) => names.includes(stage.name))
    if (found >= 0) current = found
    result[current]!.stages.push(stage)
  }
  return result.filter((act) => act.stages.length > 0)
}

/** How a stage is drawn: a number a key, a vector a key, or one vector. */
export function drawnAs(stage: Stage, message: Pick<MathsMessage, 'keys'>): 'keys' | 'matrix' | 'vector' {
  if (stage.shape.length === 2) return 'matrix'
  const byKey = ['scores', 'energies', 'mask', 'masked', 'weights', 'aligned'].includes(stage.name)
  return byKey && stage.shape[0] === message.keys.length ? 'keys' : 'vector'
}

const digits = (value: number, places = 2) => value.toFixed(places).replace('-', '−')

/** The way from a score to a weight for one key, with its numbers: lines of text. */
export function workedOut(tensors: Tensors, message: Pick<MathsMessage, 'd_k'>, key: number): string[] {
  const lines: string[] = []
  const data = (name: string) => tensors.get(name)?.data
  const [q, k] = [data('q'), data('k')]
  const scores = data('scores') ?? data('energies')
  if (q && k && data('scores')) {
    const products = Array.from(q, (each, i) => each * k[key * q.length + i]!)
    const dot = products.reduce((sum, each) => sum + each, 0)
    const few = products.slice(0, 3).map((each) => digits(each)).join(' + ').replaceAll('+ −', '− ')
    lines.push(`q·k = ${few} + … (${q.length} products) = ${digits(dot)}`)
    lines.push(`score = ${digits(dot)} / √${message.d_k} = ${digits(dot)} / ${digits(Math.sqrt(message.d_k))} = ${digits(scores?.[key] ?? NaN)}`)
  }
  const [masked, weights, mask] = [data('masked'), data('weights'), data('mask')]
  if (mask?.[key]) return [...lines, 'hidden by the mask: −∞, so its weight is 0']
  if (masked && weights) {
    const powers = Array.from(masked, (each) => Math.exp(each))
    const sum = powers.reduce((total, each) => total + each, 0)
    lines.push(`weight = e^${digits(masked[key]!)} / Σ e^score = ${digits(powers[key]!, 3)} / ${digits(sum, 3)} = ${digits(weights[key]!, 3)}`)
  }
  return lines
}
