/** A matrix as a place on the screen: how large its cells are, which labels there is room for, what is under a point. */

export interface Room {
  width: number
  height: number
}

export interface Cells {
  /** Width and height of one cell, and of all of them. */
  wide: number
  high: number
  width: number
  height: number
}

export const LARGEST = 42
export const SMALLEST = 1
const LETTER = 13
/** Cells that would be smaller than this need not be square: a few rows stay readable over many columns. */
const SQUARE = 12

/** Cells as large as fit, but no larger than reads well and no smaller than can be seen; square where there is room. */
export function cellsIn(room: Room, rows: number, columns: number): Cells {
  const [across, down] = [room.width / Math.max(1, columns), room.height / Math.max(1, rows)]
  const side = Math.min(across, down)
  const fitting = (size: number, most: number) => Math.min(most, Math.max(SMALLEST, size >= 6 ? Math.floor(size) : size))
  const square = side >= SQUARE
  const wide = fitting(square ? side : across, square ? LARGEST : SQUARE)
  const high = fitting(square ? side : down, square ? LARGEST : SQUARE + 4)
  return { wide, high, width: wide * columns, height: high * rows }
}

/** The labels there is room for: all of them, or every so many-th, and always those that are looked at. */
export function labelled(count: number, size: number, always: readonly (number | null)[]): number[] {
  const every = Math.max(1, Math.ceil(LETTER / size - 0.35))
  const wanted = always.filter((place): place is number => place !== null && place >= 0 && place < count)
  const near = (place: number) => every > 1 && wanted.some((each) => Math.abs(each - place) < every && each !== place)
  const places = Array.from({ length: count }, (_, place) => place)
  return places.filter((place) => wanted.includes(place) || (place % every === 0 && !near(place)))
}

/** The column drawn at this place from the left, and the other way round. */
export function mirrored(column: number, columns: number, rtl: boolean): number {
  return rtl ? columns - 1 - column : column
}

export interface Cell {
  row: number
  column: number
}

/** Where a key takes the active cell; nothing if the key is not for moving. Arrows go where they point on the screen. */
export function walked({ row, column }: Cell, key: string, rows: number, columns: number, rtl: boolean): Cell | null {
  const ahead = rtl ? -1 : 1
  const to = {
    ArrowRight: [row, column + ahead],
    ArrowLeft: [row, column - ahead],
    ArrowDown: [row + 1, column],
    ArrowUp: [row - 1, column],
    Home: [row, 0],
    End: [row, columns - 1],
    PageDown: [row + 10, column],
    PageUp: [row - 10, column],
  }[key]
  if (!to) return null
  const within = (place: number, count: number) => Math.min(count - 1, Math.max(0, place))
  return { row: within(to[0]!, rows), column: within(to[1]!, columns) }
}
