import { describe, expect, it } from 'vitest'
import { measureBy, layoutAtlas, thumbAt, moveThumb } from '../src/lib/atlas'
import type { HeadFacts, PartShape } from '../src/lib/messages'

const PARTS: PartShape[] = [{ part: 'encoder', layers: 2, heads: 3 }, { part: 'cross', layers: 2, heads: 3 }]
const fact = (part: 'encoder' | 'cross', layer: number, head: number, confidence: number): HeadFacts => ({
  part, layer, head, confidence, entropy: 1 - confidence, distance: layer,
})
const FACTS = PARTS.flatMap(({ part }) => [0, 1].flatMap((layer) => [0, 1, 2].map((head) => fact(part as 'cross', layer, head, (head * 2 + layer + 1) / 10))))
const noEffect = () => undefined

describe('the atlas', () => {
  it('contains every head once, without overlaps', () => {
    const { thumbs } = layoutAtlas(PARTS, 900, 'layer', noEffect)
    expect(thumbs).toHaveLength(12)
    expect(new Set(thumbs.map(({ x, y }) => `${x}/${y}`)).size).toBe(12)
  })

  it('fits into its width', () => {
    for (const width of [300, 700, 1600]) {
      const sheet = layoutAtlas(PARTS, width, 'layer', noEffect)
      expect(Math.max(...sheet.thumbs.map(({ x, size }) => x + size))).toBeLessThanOrEqual(width)
      expect(Math.max(...sheet.thumbs.map(({ y, size }) => y + size))).toBeLessThanOrEqual(sheet.height)
    }
  })

  it('sorts by confidence in descending and by entropy in ascending order', () => {
    for (const sort of ['confidence', 'entropy'] as const) {
      const { thumbs } = layoutAtlas(PARTS, 900, sort, measureBy(sort, FACTS, noEffect))
      expect([thumbs[0]!.layer, thumbs[0]!.head]).toEqual([1, 2])
    }
  })

  it('puts heads without a measure last', () => {
    const effect = ({ head }: { head: number }) => (head === 1 ? -3 : undefined)
    const { thumbs } = layoutAtlas(PARTS, 900, 'effect', measureBy('effect', FACTS, effect))
    expect(thumbs.slice(0, 2).map(({ head }) => head)).toEqual([1, 1])
  })

  it('finds the head under the pointer', () => {
    const sheet = layoutAtlas(PARTS, 900, 'layer', noEffect)
    const thumb = sheet.thumbs[4]!
    expect(thumbAt(sheet, thumb.x + 3, thumb.y + 3)).toBe(4)
    expect(thumbAt(sheet, -5, -5)).toBe(-1)
  })

  it('moves between heads and layers by arrow keys', () => {
    const sheet = layoutAtlas(PARTS, 900, 'layer', noEffect)
    const at = (index: number) => [sheet.thumbs[index]!.layer, sheet.thumbs[index]!.head]
    expect(at(moveThumb(sheet, 0, 'ArrowRight'))).toEqual([0, 1])
    expect(at(moveThumb(sheet, 0, 'ArrowDown'))).toEqual([1, 0])
    expect(moveThumb(sheet, 0, 'ArrowLeft')).toBe(0)
    expect(moveThumb(sheet, 0, 'ArrowUp')).toBe(0)
  })
})
