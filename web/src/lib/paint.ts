/** Puts matrices on canvases: one pixel a cell on a small hidden canvas, then enlarged without smoothing. */

import { divergingPixels, pixels, shade, type Palette } from './palette'
import { brightness, type Scale } from './scale'
import type { Layer, Matrix } from './weights'

export interface Rectangle {
  x: number
  y: number
  width: number
  height: number
}

let small: HTMLCanvasElement | null = null

function hidden(width: number, height: number): CanvasRenderingContext2D {
  small ??= document.createElement('canvas')
  if (small.width < width) small.width = width
  if (small.height < height) small.height = height
  return small.getContext('2d', { willReadFrequently: true })!
}

/** A canvas of this many CSS pixels, sharp on any screen; what is drawn is measured in CSS pixels. */
export function sharp(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))]
  if (canvas.width !== wide) canvas.width = wide
  if (canvas.height !== high) canvas.height = high
  const context = canvas.getContext('2d')!
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.imageSmoothingEnabled = false
  return context
}

function place(context: CanvasRenderingContext2D, image: ImageData, into: Rectangle): void {
  const { width, height } = image
  const source = hidden(width, height)
  source.putImageData(image, 0, 0)
  context.drawImage(source.canvas, 0, 0, width, height, into.x, into.y, into.width, into.height)
}

/** Weights as brightness; `mirrored` where the keys run from right to left. */
export function paintWeights(
  context: CanvasRenderingContext2D, matrix: Matrix, into: Rectangle, palette: Palette, scale: Scale, mirrored = false,
): void {
  const shades = pixels(palette)
  fill(context, matrix, into, mirrored, (weight) => shades[shade(brightness(weight, scale))]!)
}

/** Signed numbers between −range and range, white at zero. */
export function paintSigned(
  context: CanvasRenderingContext2D, matrix: Matrix, into: Rectangle, range: number, mirrored = false,
): void {
  const shades = divergingPixels()
  const clip = (t: number) => Math.min(1, Math.max(-1, t))
  fill(context, matrix, into, mirrored, (value) => shades[shade((clip(range > 0 ? value / range : 0) + 1) / 2)]!)
}

function fill(
  context: CanvasRenderingContext2D, { rows, columns, data }: Matrix, into: Rectangle, mirrored: boolean,
  pixel: (value: number) => number,
): void {
  if (!rows || !columns) return
  const image = new ImageData(columns, rows)
  const words = new Uint32Array(image.data.buffer)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      words[row * columns + (mirrored ? columns - 1 - column : column)] = pixel(data[row * columns + column]!)
    }
  }
  place(context, image, into)
}

/** One head straight from its bytes through a table of 256 pixels. */
export function paintBytes(
  context: CanvasRenderingContext2D, layer: Layer, head: number, into: Rectangle, table: Uint32Array, mirrored: boolean,
): void {
  const { queries, keys, data } = layer
  if (!queries || !keys) return
  const image = new ImageData(keys, queries)
  const words = new Uint32Array(image.data.buffer)
  const start = head * queries * keys
  for (let i = 0; i < words.length; i++) {
    const at = mirrored ? i - (i % keys) + (keys - 1 - (i % keys)) : i
    words[at] = table[data[start + i]!]!
  }
  place(context, image, into)
}
