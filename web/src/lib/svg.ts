/** Draw a heat map as SVG in the page, which works without a server. */

import { css } from './palette'
import { brightness, type Scale } from './scale'
import type { Palette } from './palette'
import type { Selection } from './selection'

const CELL = 22
const LEFT = 110
const TOP = 100

const escaped = (text: string) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`)

/** Return a selection as an SVG heat map. */
export function heatSvg(selection: Selection, palette: Palette, scale: Scale, title: string): string {
  const { matrix, queries, keys, visible } = selection
  const across = (column: number) => LEFT + CELL * (keys.rtl ? matrix.columns - 1 - column : column)
  const cells: string[] = []
  for (let row = 0; row < matrix.rows; row++) {
    for (let column = 0; column < (visible[row] ?? 0); column++) {
      const weight = matrix.data[row * matrix.columns + column]!
      const box = `x="${across(column)}" y="${TOP + CELL * row}" width="${CELL}" height="${CELL}"`
      cells.push(`<rect ${box} fill="${css(palette, brightness(weight, scale))}"><title>${weight.toFixed(3)}</title></rect>`)
    }
  }
  const rows = queries.labels.map(
    (text, row) => `<text x="${LEFT - 8}" y="${TOP + CELL * (row + 0.5)}" text-anchor="end" dominant-baseline="central">${escaped(text)}</text>`,
  )
  const columns = keys.labels.map((text, column) => {
    const [x, y] = [across(column) + CELL / 2, TOP - 8]
    return `<text x="${x}" y="${y}" transform="rotate(-52 ${x} ${y})" dominant-baseline="central">${escaped(text)}</text>`
  })
  const [width, height] = [LEFT + CELL * matrix.columns + 70, TOP + CELL * matrix.rows + 16]
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="13">`,
    `<title>${escaped(title)}</title><rect width="100%" height="100%" fill="white"/>`,
    ...cells, ...rows, ...columns, '</svg>',
  ].join('\n')
}
