/** Paint matrices on canvases: one pixel per cell on a hidden canvas, enlarged without smoothing. */

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

/** Resize a canvas to CSS pixels at the screen's own resolution, and return its context, scaled to CSS pixels. */
export function scaledContext(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))]
  if (canvas.width !== wide) canvas.width = wide
  if (canvas.height !== high) canvas.height = high
  const context = canvas.getContext('2d')!
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.imageSmoothingEnabled = false
  return context
}

function drawImage(context: CanvasRenderingContext2D, image: ImageData, into: Rectangle): void {
  const { width, height } = image
  const source = hidden(width, height)
  source.putImageData(image, 0, 0)
  context.drawImage(source.canvas, 0, 0, width, height, into.x, into.y, into.width, into.height)
}

/** How the keys of a matrix are painted. */
export interface KeyOptions {
  /** Whether the keys run from right to left. */
  mirrored?: boolean
  /** The number of keys that each query can attend to; masked keys are left empty. */
  visible?: readonly number[]
}

/** Paint weights as brightness. */
export function paintWeights(
  context: CanvasRenderingContext2D, matrix: Matrix, into: Rectangle, palette: Palette, scale: Scale, keys: KeyOptions = {},
): void {
  const table = pixels(palette)
  fill(context, matrix, into, keys, (weight) => table[shade(brightness(weight, scale))]!)
}

/** Paint signed numbers between −range and range; zero is white. */
export function paintSigned(context: CanvasRenderingContext2D, matrix: Matrix, into: Rectangle, range: number, keys: KeyOptions = {}): void {
  const table = divergingPixels()
  const clip = (t: number) => Math.min(1, Math.max(-1, t))
  fill(context, matrix, into, keys, (value) => table[shade((clip(range > 0 ? value / range : 0) + 1) / 2)]!)
}

function fill(
  context: CanvasRenderingContext2D, { rows, columns, data }: Matrix, into: Rectangle, { mirrored = false, visible }: KeyOptions,
  pixel: (value: number) => number,
): void {
  if (!rows || !columns) return
  const image = new ImageData(columns, rows)
  const words = new Uint32Array(image.data.buffer)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < (visible?.[row] ?? columns); column++) {
      words[row * columns + (mirrored ? columns - 1 - column : column)] = pixel(data[row * columns + column]!)
    }
  }
  drawImage(context, image, into)
}

/** Paint one head directly from its bytes, through a table of 256 pixels; a causal head leaves later keys empty. */
export function paintBytes(
  context: CanvasRenderingContext2D, layer: Layer, head: number, into: Rectangle, table: Uint32Array, mirrored: boolean, causal: boolean,
): void {
  const { queries, keys, data } = layer
  if (!queries || !keys) return
  const image = new ImageData(keys, queries)
  const words = new Uint32Array(image.data.buffer)
  const start = head * queries * keys
  for (let i = 0; i < words.length; i++) {
    const key = i % keys
    const at = mirrored ? i - key + (keys - 1 - key) : i
    if (!causal || key <= (i - key) / keys) words[at] = table[data[start + i]!]!
  }
  drawImage(context, image, into)
}
