/** Names of attention as the page shows them, and pinning of queries and keys. */

import type { Explorer } from './explorer.svelte'
import type { Model, Part } from './messages'

/** Return whether a model has no attention but the self-attention of its decoder. */
export function hasOnlySelfAttention(model: Model): boolean {
  return model.parts.every(({ part }) => part === 'decoder')
}

/** Return the name of a kind of attention; a model without encoder has only self-attention. */
export function partName(part: Part, model: Model | undefined): string {
  if (part === 'cross') return 'Cross-attention'
  if (model && hasOnlySelfAttention(model)) return 'Self-attention'
  return part === 'encoder' ? 'Encoder self-attention' : 'Decoder self-attention'
}

/** Return the name of the selected attention: «Cross-attention, layer 2, head 3». */
export function attentionName({ attention, shape, state, model }: Explorer): string {
  if (!attention || !shape) return ''
  const name = partName(attention.part, model)
  if (shape.layers * shape.heads === 1) return 'Attention'
  const heads = attention.heads.map((head) => head + 1).join(' + ')
  if (state.aggregate === 'rollout') return `${name}, rollout to layer ${attention.layer + 1}`
  if (state.aggregate === 'head') return `${name}, layer ${attention.layer + 1}, head ${heads}`
  return `${name}, layer ${attention.layer + 1}, ${state.aggregate} of ${attention.heads.length > 1 ? `heads ${heads}` : 'all heads'}`
}

/** Return how an output token was given: as the prompt of a language model, or forced by the user. */
export function givenAs({ state, prompt }: Explorer, position: number): 'prompt' | 'forced' | undefined {
  if (position < prompt) return 'prompt'
  return position < state.prefix.length ? 'forced' : undefined
}

/** Pin a row or a column of the selection, or unpin it. */
export function pinCell(explorer: Explorer, side: 'query' | 'key', group: number): void {
  const edge = explorer.selection?.[side === 'query' ? 'queries' : 'keys']
  const place = edge?.groups[group]?.members[0]
  if (place === undefined) return
  const { pin } = explorer.state
  const isPinned = pin?.side === side && edge?.groups[group]?.members.includes(pin.place)
  explorer.state.pin = isPinned ? null : { side, place }
  if (side === 'query' && explorer.attention?.part !== 'encoder') explorer.state.step = place
}
