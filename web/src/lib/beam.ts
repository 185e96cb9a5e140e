/** Layouts of a beam search: steps from left to right, by rank or as a tree without crossings. */

import { hierarchy, tree } from 'd3-hierarchy'
import type { BeamMessage, BeamNode, Fate } from './messages'

export interface PlacedNode {
  readonly index: number
  readonly node: BeamNode
  readonly x: number
  readonly y: number
  readonly parent: number | null
  readonly best: boolean
}

export interface Tree {
  readonly nodes: PlacedNode[]
  readonly width: number
  readonly height: number
}

interface Branch {
  index: number
  children: Branch[]
}

/** Letter and meaning of each kind of node, so that colour is not the only distinction. */
export const FATES: Record<Fate, { letter: string; meaning: string }> = {
  kept: { letter: 'K', meaning: 'kept in the beam' },
  ended: { letter: 'E', meaning: 'ended: a finished hypothesis' },
  pruned: { letter: 'P', meaning: 'pruned: not among the best' },
  stopped: { letter: 'S', meaning: 'stopped: the search ended' },
}

type Nodes = Pick<BeamMessage, 'nodes' | 'best'>

function showing(beam: Nodes, withPruned: boolean): (node: BeamNode, index: number) => boolean {
  const best = new Set(beam.best)
  return (node, index) => withPruned || node.fate !== 'pruned' || best.has(index)
}

/** Lay out one column per step, the best candidate on top. */
export function rankLayout(beam: Nodes, withPruned: boolean, step: number, line: number): Tree {
  const shown = showing(beam, withPruned)
  const rows = new Map<number, number>()
  const byRank = beam.nodes.map((node, index) => ({ node, index })).sort((a, b) => a.node.rank - b.node.rank)
  const nodes = byRank.flatMap(({ node, index }): PlacedNode[] => {
    if (!shown(node, index)) return []
    const row = rows.get(node.place) ?? 0
    rows.set(node.place, row + 1)
    return [{ index, node, x: (node.place + 1) * step, y: (row + 1) * line, parent: node.parent, best: beam.best.includes(index) }]
  })
  return sheet(nodes, step, line)
}

function sheet(nodes: PlacedNode[], step: number, line: number): Tree {
  return {
    nodes,
    width: Math.max(step, ...nodes.map(({ x }) => x)) + step,
    height: Math.max(line, ...nodes.map(({ y }) => y)) + line,
  }
}

/** Lay out a tree without crossings; `step` and `line` are the distances between steps and between leaves. */
export function treeLayout(beam: Nodes, withPruned: boolean, step: number, line: number): Tree {
  const best = new Set(beam.best)
  const shown = showing(beam, withPruned)
  const branches = beam.nodes.map((_, index): Branch => ({ index, children: [] }))
  const root: Branch = { index: -1, children: [] }
  beam.nodes.forEach((node, index) => {
    if (!shown(node, index)) return
    ;(node.parent === null ? root : branches[node.parent]!).children.push(branches[index]!)
  })
  for (const branch of [root, ...branches]) branch.children.sort((a, b) => order(beam.nodes, a) - order(beam.nodes, b))

  const top = tree<Branch>().nodeSize([line, step]).separation((a, b) => (a.parent === b.parent ? 1 : 1.25))(hierarchy(root))
  const points = top.descendants().filter(({ data }) => data.index >= 0)
  const least = Math.min(0, ...points.map(({ x }) => x))
  const nodes = points.map(({ x, y, data }): PlacedNode => {
    const node = beam.nodes[data.index]!
    return { index: data.index, node, x: y, y: x - least + line, parent: node.parent, best: best.has(data.index) }
  })
  return sheet(nodes, step, line)
}

function order(nodes: readonly BeamNode[], branch: Branch): number {
  const node = nodes[branch.index]
  return node ? node.rank + (node.fate === 'pruned' ? 1000 : 0) : 0
}

/** Return the indices of the nodes from the first token to a node. */
export function pathTo(nodes: readonly BeamNode[], index: number): number[] {
  const path: number[] = []
  for (let at: number | null = index; at !== null; at = nodes[at]!.parent) path.unshift(at)
  return path
}
