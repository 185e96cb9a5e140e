/** Geometry of a matrix on the screen: cell sizes, visible labels and keyboard moves. */

export interface Available {
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
/** Smaller cells need not be square, so that a few rows stay readable over many columns. */
const SQUARE = 12

/** Return the largest cells that fit, within limits of readability; square cells if they are large enough. */
export function cellSizes(available: Available, rows: number, columns: number): Cells {
  const [across, down] = [available.width / Math.max(1, columns), available.height / Math.max(1, rows)]
  const side = Math.min(across, down)
  const fitting = (size: number, most: number) => Math.min(most, Math.max(SMALLEST, size >= 6 ? Math.floor(size) : size))
  const square = side >= SQUARE
  const wide = fitting(square ? side : across, square ? LARGEST : SQUARE)
  const high = fitting(square ? side : down, square ? LARGEST : SQUARE + 4)
  return { wide, high, width: wide * columns, height: high * rows }
}

/** Return the indices of the labels that fit: all, or every n-th, and always those in focus. */
export function visibleLabels(count: number, size: number, always: readonly (number | null)[]): number[] {
  const every = Math.max(1, Math.ceil(LETTER / size - 0.35))
  const wanted = always.filter((index): index is number => index !== null && index >= 0 && index < count)
  const near = (index: number) => every > 1 && wanted.some((shown) => Math.abs(shown - index) < every && shown !== index)
  const indices = Array.from({ length: count }, (_, index) => index)
  return indices.filter((index) => wanted.includes(index) || (index % every === 0 && !near(index)))
}

/** Return the column at a position from the left; its own inverse. */
export function mirrored(column: number, columns: number, rtl: boolean): number {
  return rtl ? columns - 1 - column : column
}

export interface Cell {
  row: number
  column: number
}

/** Return the cell that a key moves to, or null for other keys. Arrow keys move in their direction on the screen. */
export function moveCell({ row, column }: Cell, key: string, rows: number, columns: number, rtl: boolean): Cell | null {
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
  const within = (index: number, count: number) => Math.min(count - 1, Math.max(0, index))
  return { row: within(to[0]!, rows), column: within(to[1]!, columns) }
}
