/** The difference of two token sequences: same, replaced, removed and added tokens. */

export type Step =
  | { op: 'same'; before: number; after: number }
  | { op: 'replaced'; before: number; after: number }
  | { op: 'removed'; before: number }
  | { op: 'added'; after: number }

/** Return a shortest edit script (Levenshtein) between two sequences, in order. */
export function diffTokens<T>(before: readonly T[], after: readonly T[], same = (a: T, b: T) => a === b): Step[] {
  const width = after.length + 1
  const cost = new Uint32Array((before.length + 1) * width)
  for (let i = 0; i <= before.length; i++) {
    for (let j = 0; j <= after.length; j++) {
      if (i === 0 || j === 0) cost[i * width + j] = i + j
      else {
        const replaced = cost[(i - 1) * width + j - 1]! + (same(before[i - 1]!, after[j - 1]!) ? 0 : 1)
        cost[i * width + j] = Math.min(replaced, cost[(i - 1) * width + j]! + 1, cost[i * width + j - 1]! + 1)
      }
    }
  }
  const steps: Step[] = []
  let i = before.length
  let j = after.length
  while (i > 0 || j > 0) {
    const here = cost[i * width + j]!
    const equal = i > 0 && j > 0 && same(before[i - 1]!, after[j - 1]!)
    if (i > 0 && j > 0 && here === cost[(i - 1) * width + j - 1]! + (equal ? 0 : 1)) {
      steps.push({ op: equal ? 'same' : 'replaced', before: --i, after: --j })
    } else if (i > 0 && here === cost[(i - 1) * width + j]! + 1) {
      steps.push({ op: 'removed', before: --i })
    } else {
      steps.push({ op: 'added', after: --j })
    }
  }
  return steps.reverse()
}
