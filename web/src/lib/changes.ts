/** Changes in words, and changes added to others. */

import type { Change, Part, Token } from './messages'
import { label } from './selection'

const PARTS: Record<Part, string> = { encoder: 'encoder self', decoder: 'decoder self', cross: 'cross' }
const HOW = { zero: 'silenced', mean: 'replaced by their mean', uniform: 'made uniform' } as const

/** A change as a person would say it. */
export function described(change: Change, source: readonly Token[]): string {
  if (change.op === 'block') {
    const names = change.tokens.map((place) => (source[place] ? `'${label(source[place])}'` : `token ${place + 1}`))
    return `${names.join(', ')} blocked`
  }
  const where = `${PARTS[change.part]} layer ${change.layer + 1}`
  if (change.op === 'row') return `${where}, head ${change.head + 1}: row ${change.query + 1} edited`
  const heads = `head${change.heads.length > 1 ? 's' : ''} ${change.heads.map((head) => head + 1).join(', ')}`
  return change.op === 'keep' ? `${where}: only ${heads} kept` : `${where}, ${heads} ${HOW[change.how]}`
}

function about(change: Change): string {
  if (change.op === 'block') return 'block'
  if (change.op === 'row') return `row/${change.part}/${change.layer}/${change.head}/${change.query}`
  const how = change.op === 'keep' ? 'keep' : change.how
  return `${how}/${change.part}/${change.layer}`
}

/** The changes with one more: what is about the same place is put together, not put twice. */
export function added(changes: readonly Change[], change: Change): Change[] {
  const place = changes.findIndex((each) => about(each) === about(change))
  const old = changes[place]
  if (!old) return [...changes, change]
  return changes.map((each, i) => (i === place ? joined(old, change) : each))
}

function joined(old: Change, change: Change): Change {
  const union = (a: readonly number[], b: readonly number[]) => [...new Set([...a, ...b])].sort((x, y) => x - y)
  if (old.op === 'block' && change.op === 'block') return { ...change, tokens: union(old.tokens, change.tokens) }
  if (old.op === 'ablate' && change.op === 'ablate') return { ...change, heads: union(old.heads, change.heads) }
  if (old.op === 'keep' && change.op === 'keep') return { ...change, heads: union(old.heads, change.heads) }
  return change
}

/** The changes without the blocking of one source token. */
export function unblocked(changes: readonly Change[], token: number): Change[] {
  return changes.flatMap((change): Change[] => {
    if (change.op !== 'block') return [change]
    const tokens = change.tokens.filter((each) => each !== token)
    return tokens.length ? [{ ...change, tokens }] : []
  })
}
