/** How one sequence of tokens became another: kept, gone, come, or put in another's place. */

export type Step =
  | { op: 'same'; before: number; after: number }
  | { op: 'changed'; before: number; after: number }
  | { op: 'gone'; before: number }
  | { op: 'come'; after: number }

/** The shortest way (Levenshtein) from one sequence to another, as steps in order. */
export function changesBetween<T>(before: readonly T[], after: readonly T[], same = (a: T, b: T) => a === b): Step[] {
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
      steps.push({ op: equal ? 'same' : 'changed', before: --i, after: --j })
    } else if (i > 0 && here === cost[(i - 1) * width + j]! + 1) {
      steps.push({ op: 'gone', before: --i })
    } else {
      steps.push({ op: 'come', after: --j })
    }
  }
  return steps.reverse()
}
