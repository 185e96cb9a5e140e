/** The computation of one query: its stages in groups, and the calculation of one key's weight in full. */

import type { MathsMessage, Stage } from './messages'
import { decimal } from './selection'
import type { Tensor } from './wire'

export type Tensors = ReadonlyMap<string, Tensor>

export interface StageGroup {
  title: string
  stages: Stage[]
}

const GROUPS: { title: string; names: string[] }[] = [
  { title: 'Embedding', names: ['embedding', 'position', 'sum', 'stream', 'entered'] },
  { title: 'Query, keys and values', names: ['query', 'keys', 'q', 'k', 'v', 'projected_query', 'projected_keys', 'outer'] },
  { title: 'Scores and weights', names: ['scores', 'energies', 'mask', 'masked', 'weights'] },
  { title: 'Output', names: ['mixed', 'context', 'joined', 'output', 'residual', 'normed', 'state', 'vector'] },
]

/** Group the stages under four headings; an unknown stage stays with the one before it. */
export function groupStages(stages: readonly Stage[]): StageGroup[] {
  const result = GROUPS.map(({ title }): StageGroup => ({ title, stages: [] }))
  let current = 0
  for (const stage of stages) {
    const group = GROUPS.findIndex(({ names }) => names.includes(stage.name))
    if (group >= 0) current = group
    result[current]!.stages.push(stage)
  }
  return result.filter((group) => group.stages.length > 0)
}

/** Return how a stage is displayed: one number per key, one vector per key, or one vector. */
export function displayKind(stage: Stage, message: Pick<MathsMessage, 'keys'>): 'keys' | 'matrix' | 'vector' {
  if (stage.shape.length === 2) return 'matrix'
  const byKey = ['scores', 'energies', 'mask', 'masked', 'weights', 'aligned'].includes(stage.name)
  return byKey && stage.shape[0] === message.keys.length ? 'keys' : 'vector'
}

/** Return the calculation of one key's weight as lines of text. */
export function calculation(tensors: Tensors, stages: readonly Pick<Stage, 'name' | 'formula'>[], key: number): string[] {
  const lines: string[] = []
  const data = (name: string) => tensors.get(name)?.data
  const [q, k, bias] = [data('q'), data('k'), data('bias')?.[key]]
  const score = (data('scores') ?? data('energies'))?.[key] ?? NaN
  const formula = stages.find(({ name }) => name === 'scores' || name === 'energies')?.formula ?? ''
  if (q && k && formula.includes('q·k')) {
    const products = Array.from(q, (value, i) => value * k[key * q.length + i]!)
    const dot = products.reduce((sum, value) => sum + value, 0)
    const few = products.slice(0, 3).map((value) => decimal(value)).join(' + ').replaceAll('+ −', '− ')
    lines.push(`q·k = ${few} + … (${q.length} products) = ${decimal(dot)}`)
    const root = /√([\d.]+)/.exec(formula)?.[1]
    const added = bias === undefined ? '' : ` + ${decimal(bias)}`.replace('+ −', '− ')
    if (root) lines.push(`score = ${decimal(dot)} / √${root}${added} = ${decimal(dot)} / ${decimal(Math.sqrt(Number(root)))}${added} = ${decimal(score)}`)
    else if (added) lines.push(`score = ${decimal(dot)}${added} = ${decimal(score)}`)
  } else if (formula) lines.push(`${formula} = ${decimal(score)}`)
  const [masked, weights, mask] = [data('masked'), data('weights'), data('mask')]
  if (mask?.[key]) return [...lines, 'masked: the score is −∞, so the weight is 0']
  if (masked && weights) {
    const powers = Array.from(masked, (score) => Math.exp(score))
    const sum = powers.reduce((total, power) => total + power, 0)
    lines.push(`weight = e^${decimal(masked[key]!)} / Σ e^score = ${decimal(powers[key]!, 3)} / ${decimal(sum, 3)} = ${decimal(weights[key]!, 3)}`)
  }
  return lines
}
