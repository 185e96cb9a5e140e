import { describe, expect, it } from 'vitest'
import { treeLayout, pathTo, rankLayout } from '../src/lib/beam'
import type { BeamNode, Fate } from '../src/lib/messages'

const node = (parent: number | null, place: number, rank: number, fate: Fate = 'kept'): BeamNode => ({
  parent, place, rank, fate, id: 1, piece: 'x', text: 'x', logprob: -1, total: -1, score: -1,
})
//            0                 1                 2                    3                 4                     5
const NODES = [node(null, 0, 0), node(null, 0, 1), node(null, 0, 2, 'pruned'), node(0, 1, 0, 'ended'), node(1, 1, 1, 'stopped'), node(0, 1, 2, 'pruned')]
const BEAM = { nodes: NODES, best: [0, 3] }

describe('the beam tree', () => {
  it('places each step to the right of the one before', () => {
    const tree = treeLayout(BEAM, true, 100, 20)
    const x = new Map(tree.nodes.map((placed) => [placed.index, placed.x]))
    expect([0, 1, 2].map((index) => x.get(index))).toEqual([100, 100, 100])
    expect([3, 4, 5].map((index) => x.get(index))).toEqual([200, 200, 200])
  })

  it('places no two nodes at one point, and none outside', () => {
    const tree = treeLayout(BEAM, true, 100, 20)
    expect(new Set(tree.nodes.map(({ x, y }) => `${x}/${y}`)).size).toBe(NODES.length)
    expect(tree.nodes.every(({ x, y }) => x >= 0 && y >= 0 && x <= tree.width && y <= tree.height)).toBe(true)
  })

  it('has no crossing branches: the children of a higher node are higher', () => {
    const tree = treeLayout(BEAM, true, 100, 20)
    const y = (index: number) => tree.nodes.find((placed) => placed.index === index)!.y
    expect(Math.sign(y(0) - y(1))).toBe(Math.sign(y(3) - y(4)))
    expect(Math.sign(y(0) - y(1))).toBe(Math.sign(y(5) - y(4)))
  })

  it('can hide pruned nodes, but never the best path', () => {
    expect(treeLayout(BEAM, false, 100, 20).nodes.map(({ index }) => index).sort()).toEqual([0, 1, 3, 4])
    expect(treeLayout({ nodes: NODES, best: [2] }, false, 100, 20).nodes.map(({ index }) => index).sort()).toEqual([0, 1, 2, 3, 4])
  })

  it('finds the best path and the path to any node', () => {
    expect(treeLayout(BEAM, true, 100, 20).nodes.filter(({ best }) => best).map(({ index }) => index).sort()).toEqual([0, 3])
    expect(pathTo(NODES, 4)).toEqual([1, 4])
    expect(pathTo(NODES, 0)).toEqual([0])
  })
})

describe('the beam by rank', () => {
  it('places the best node of each step on top', () => {
    const { nodes } = rankLayout(BEAM, true, 100, 20)
    const place = (index: number) => nodes.find((placed) => placed.index === index)!
    expect([0, 1, 2].map((index) => place(index).y)).toEqual([20, 40, 60])
    expect([3, 4, 5].map((index) => [place(index).x, place(index).y])).toEqual([[200, 20], [200, 40], [200, 60]])
  })

  it('leaves no gaps for hidden nodes', () => {
    const { nodes } = rankLayout({ nodes: [node(null, 0, 0, 'pruned'), node(null, 0, 1)], best: [] }, false, 100, 20)
    expect(nodes.map(({ index, y }) => [index, y])).toEqual([[1, 20]])
  })
})
