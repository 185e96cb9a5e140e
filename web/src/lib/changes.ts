/** Describe changes in words, and add them to a list. */

import type { Change, Level, Part, Token } from './messages'
import { isolated } from './script'
import { label } from './selection'

const PARTS: Record<Part, string> = { encoder: 'encoder self', decoder: 'decoder self', cross: 'cross' }
const HOW = { zero: 'set to zero', mean: 'set to their mean', uniform: 'made uniform' } as const

/**
 * Describe a change in words; `named` says which kind of attention is meant, which one of a kind does not need, and
 * `words` are those of a text that is classified.
 */
export function describeChange(change: Change, source: readonly Token[], named = true, words: readonly string[] = []): string {
  if (change.op === 'drop') return `turn${change.numbers.length > 1 ? 's' : ''} ${change.numbers.map((number) => number + 1).join(', ')} dropped`
  if (change.op === 'edit') return `turn ${change.number + 1} edited`
  if (change.op === 'erase') return `${describeParts(change.level, change.numbers, words)} erased`
  if (change.op === 'block') {
    const names = change.tokens.map((index) => (source[index] ? `'${label(source[index])}'` : `token ${index + 1}`))
    return `${names.join(', ')} blocked`
  }
  const where = `${named ? `${PARTS[change.part]} ` : ''}layer ${change.layer + 1}`
  if (change.op === 'row') return `${where}, head ${change.head + 1}: weights of query ${change.query + 1} edited`
  const heads = `head${change.heads.length > 1 ? 's' : ''} ${change.heads.map((head) => head + 1).join(', ')}`
  return change.op === 'keep' ? `${where}: only ${heads} kept` : `${where}, ${heads} ${HOW[change.how]}`
}

function describeParts(level: Level, numbers: readonly number[], words: readonly string[]): string {
  const names = numbers.map((number) => (level === 'word' && words[number] ? `'${isolated(words[number])}'` : String(number + 1)))
  return `${level}${numbers.length > 1 ? 's' : ''} ${names.join(', ')}`
}

/** Return a key that is equal for changes that can be merged. */
function mergeKey(change: Change): string {
  if (change.op === 'block' || change.op === 'drop') return change.op
  if (change.op === 'edit') return `edit/${change.number}`
  if (change.op === 'erase') return `erase/${change.level}`
  if (change.op === 'row') return `row/${change.part}/${change.layer}/${change.head}/${change.query}`
  const how = change.op === 'keep' ? 'keep' : change.how
  return `${how}/${change.part}/${change.layer}`
}

/** Add a change, merged with an earlier one of the same kind and layer. */
export function addChange(changes: readonly Change[], change: Change): Change[] {
  const index = changes.findIndex((earlier) => mergeKey(earlier) === mergeKey(change))
  const old = changes[index]
  if (!old) return [...changes, change]
  return changes.map((earlier, i) => (i === index ? merge(old, change) : earlier))
}

function merge(old: Change, change: Change): Change {
  const union = (a: readonly number[], b: readonly number[]) => [...new Set([...a, ...b])].sort((x, y) => x - y)
  if (old.op === 'block' && change.op === 'block') return { ...change, tokens: union(old.tokens, change.tokens) }
  if (old.op === 'erase' && change.op === 'erase') return { ...change, numbers: union(old.numbers, change.numbers) }
  if (old.op === 'ablate' && change.op === 'ablate') return { ...change, heads: union(old.heads, change.heads) }
  if (old.op === 'keep' && change.op === 'keep') return { ...change, heads: union(old.heads, change.heads) }
  return change
}

/** Return the changes without the blocking of one source token. */
export function unblockToken(changes: readonly Change[], token: number): Change[] {
  return changes.flatMap((change): Change[] => {
    if (change.op !== 'block') return [change]
    const tokens = change.tokens.filter((blocked) => blocked !== token)
    return tokens.length ? [{ ...change, tokens }] : []
  })
}

/** Erase a sentence or word of a text that is classified, or put it back if it is erased. */
export function toggleErased(changes: readonly Change[], level: Level, number: number): Change[] {
  const others = changes.flatMap((change): Change[] => {
    if (change.op !== 'erase' || change.level !== level) return [change]
    const numbers = change.numbers.filter((erased) => erased !== number)
    return numbers.length ? [{ ...change, numbers }] : []
  })
  const wasErased = changes.some((change) => change.op === 'erase' && change.level === level && change.numbers.includes(number))
  return wasErased ? others : addChange(others, { op: 'erase', level, numbers: [number] })
}
