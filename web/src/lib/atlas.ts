/** Layout of the head atlas: one block per part, sorted by layer or by a measure. */

import type { Sort } from './address'
import type { HeadFacts, Part, PartShape } from './messages'

export interface Thumb {
  part: Part
  layer: number
  head: number
  x: number
  y: number
  size: number
  /** Row and column within its block. */
  row: number
  column: number
}

export interface Block {
  part: Part
  x: number
  y: number
  width: number
  height: number
  columns: number
  rows: number
}

export interface Sheet {
  thumbs: Thumb[]
  blocks: Block[]
  width: number
  height: number
}

export const TITLE = 40
export const MARGIN = 20
const GAP = 5
const BETWEEN = 26
const SMALLEST = 34
const LARGEST = 110
const CAPTION = 14
/** Height that is visible without scrolling. */
const TALL = 600

export type Measure = (place: { part: Part; layer: number; head: number }) => number | undefined

/** Return the measure that a sort uses. */
export function measureBy(sort: Sort, facts: readonly HeadFacts[], effect: Measure): Measure {
  if (sort === 'effect') return effect
  const known = new Map(facts.map((head) => [`${head.part}/${head.layer}/${head.head}`, head]))
  return ({ part, layer, head }) => {
    const measures = known.get(`${part}/${layer}/${head}`)
    return measures && sort !== 'layer' ? measures[sort] : undefined
  }
}

function ordered({ part, layers, heads }: PartShape, sort: Sort, measure: Measure): { layer: number; head: number }[] {
  const places = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads }))
  if (sort === 'layer') return places
  const sign = sort === 'entropy' || sort === 'effect' ? 1 : -1
  const of = (place: { layer: number; head: number }) => measure({ part, ...place }) ?? sign * Infinity
  return places.sort((a, b) => sign * (of(a) - of(b)) || a.layer - b.layer || a.head - b.head)
}

function side(width: number, across: number, columns: number): number {
  const block = (width - (across - 1) * BETWEEN) / across
  return Math.floor((block - MARGIN - (columns - 1) * GAP) / columns)
}

/** Choose the number of blocks per row, so that the heads are as large as possible while all are visible. */
function arranged(parts: readonly PartShape[], width: number, widest: number, caption: number): { across: number; size: number } {
  const layers = Math.max(1, ...parts.map(({ layers }) => layers))
  const choices = Array.from({ length: Math.max(1, parts.length) }, (_, i) => {
    const across = i + 1
    const rows = Math.ceil(parts.length / across)
    const high = Math.floor((TALL - rows * (TITLE + BETWEEN)) / (rows * layers)) - GAP - caption
    return { across, size: Math.min(LARGEST, side(width, across, widest), Math.max(SMALLEST, high)) }
  })
  const best = choices.reduce((a, b) => (b.size >= a.size ? b : a))
  return { across: best.across, size: Math.max(10, best.size) }
}

/** Lay out all heads of a model in a given width. */
export function layoutAtlas(parts: readonly PartShape[], width: number, sort: Sort, measure: Measure): Sheet {
  const widest = Math.max(1, ...parts.map(({ heads }) => heads))
  const caption = sort === 'layer' ? 0 : CAPTION
  const { across, size } = arranged(parts, width, widest, caption)
  const sheet: Sheet = { thumbs: [], blocks: [], width, height: 0 }
  const blockWidth = MARGIN + widest * (size + GAP)
  let top = 0
  for (let start = 0; start < parts.length; start += across) {
    let deepest = 0
    parts.slice(start, start + across).forEach((shape, i) => {
      const x = i * (blockWidth + BETWEEN - GAP)
      const places = ordered(shape, sort, measure)
      const columns = sort === 'layer' ? shape.heads : widest
      const rows = Math.ceil(places.length / columns)
      const height = TITLE + rows * (size + GAP + caption)
      sheet.blocks.push({ part: shape.part, x, y: top, width: blockWidth, height, columns, rows })
      places.forEach(({ layer, head }, place) => {
        const [row, column] = [Math.floor(place / columns), place % columns]
        sheet.thumbs.push({
          part: shape.part, layer, head, size, row, column,
          x: x + MARGIN + column * (size + GAP), y: top + TITLE + row * (size + GAP + caption),
        })
      })
      deepest = Math.max(deepest, height)
    })
    top += deepest + BETWEEN
  }
  sheet.height = Math.max(0, top - BETWEEN)
  return sheet
}

/** Return the index of the thumb at a point, or −1. */
export function thumbAt(sheet: Sheet, x: number, y: number): number {
  return sheet.thumbs.findIndex((thumb) => x >= thumb.x && x < thumb.x + thumb.size && y >= thumb.y && y < thumb.y + thumb.size)
}

/** Return the index of the thumb that an arrow key moves to, also across blocks. */
export function moveThumb(sheet: Sheet, from: number, key: string): number {
  const here = sheet.thumbs[from]
  if (!here) return 0
  const dx = Number(key === 'ArrowRight') - Number(key === 'ArrowLeft')
  const dy = Number(key === 'ArrowDown') - Number(key === 'ArrowUp')
  const aim = { x: here.x + dx * here.size, y: here.y + dy * here.size }
  let best = from
  let least = Infinity
  sheet.thumbs.forEach((thumb, i) => {
    const ahead = dx ? (thumb.x - here.x) * dx : (thumb.y - here.y) * dy
    const aside = dx ? Math.abs(thumb.y - here.y) : Math.abs(thumb.x - here.x)
    if (ahead <= 0 || (dx && aside > here.size)) return
    const far = Math.abs(thumb.x - aim.x) + Math.abs(thumb.y - aim.y) + 3 * aside
    if (far < least) {
      least = far
      best = i
    }
  })
  return best
}
