/** Looking and pinning, as all views do it; and names for what is looked at. */

import type { Explorer } from './explorer.svelte'
import type { Part } from './messages'

export const PART_NAMES: Record<Part, string> = { encoder: 'Encoder self-attention', decoder: 'Decoder self-attention', cross: 'Cross-attention' }

/** What the shown selection is called: «Cross-attention, layer 2, head 3». */
export function named({ at, shape, state }: Explorer): string {
  if (!at || !shape) return ''
  const name = PART_NAMES[at.part]
  if (shape.layers * shape.heads === 1) return 'Attention'
  const heads = at.heads.map((head) => head + 1).join(' + ')
  if (state.aggregate === 'rollout') return `${name}, rollout to layer ${at.layer + 1}`
  if (state.aggregate === 'head') return `${name}, layer ${at.layer + 1}, head ${heads}`
  return `${name}, layer ${at.layer + 1}, ${state.aggregate} of ${at.heads.length > 1 ? `heads ${heads}` : 'all heads'}`
}

/** Pin a row or a column of the selection, or let it go if it is pinned. */
export function pinCell(look: Explorer, side: 'query' | 'key', group: number): void {
  const edge = look.selection?.[side === 'query' ? 'queries' : 'keys']
  const place = edge?.groups[group]?.members[0]
  if (place === undefined) return
  const { pin } = look.state
  const again = pin?.side === side && edge?.groups[group]?.members.includes(pin.place)
  look.state.pin = again ? null : { side, place }
  if (side === 'query' && look.at?.part !== 'encoder') look.state.step = place
}
