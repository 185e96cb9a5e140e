/** Colours: cividis for weights, blue–white–orange for differences, Okabe–Ito for categories. */

import { brightness, type Scale } from './scale'
import { WEIGHT_OF_BYTE } from './weights'

export type Palette = 'cividis' | 'blues' | 'greys'
type Colour = readonly [number, number, number]

// Cividis (Nuñez, Anderton and Renslow 2018) at 17 even steps; linear interpolation between them is close enough.
const CIVIDIS: readonly Colour[] = [
  [0, 34, 78], [0, 46, 106], [26, 56, 111], [50, 67, 109], [67, 78, 108], [83, 90, 109], [97, 101, 111],
  [111, 112, 115], [125, 124, 120], [140, 136, 120], [155, 148, 118], [171, 160, 114], [188, 174, 108],
  [205, 187, 99], [222, 201, 88], [240, 216, 70], [254, 232, 56],
]
const BLUES: readonly Colour[] = [[255, 255, 255], [201, 219, 238], [122, 168, 212], [48, 107, 171], [8, 43, 94]]
const GREYS: readonly Colour[] = [[255, 255, 255], [0, 0, 0]]
const DIVERGING: readonly Colour[] = [
  [8, 64, 129], [43, 122, 186], [146, 192, 224], [255, 255, 255], [253, 190, 120], [223, 113, 18], [140, 56, 0],
]

const STOPS: Record<Palette, readonly Colour[]> = { cividis: CIVIDIS, blues: BLUES, greys: GREYS }

/** The palette of Okabe and Ito without black, ordered so that neighbours differ most. */
export const CATEGORY_COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'] as const

/** Interpolate between colour stops at `t`, from 0 to 1. */
export function interpolate(stops: readonly Colour[], t: number): Colour {
  const place = Math.min(1, Math.max(0, t)) * (stops.length - 1)
  const low = Math.min(stops.length - 2, Math.floor(place))
  const a = stops[low]!
  const b = stops[low + 1]!
  const mix = (i: 0 | 1 | 2) => Math.round(a[i] + (b[i] - a[i]) * (place - low))
  return [mix(0), mix(1), mix(2)]
}

// A canvas stores a pixel as red, green, blue, alpha: one little-endian 32-bit word.
function packed([red, green, blue]: Colour): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0
}

const tables = new Map<string, Uint32Array>()

function table(name: string, colour: (t: number) => Colour, size: number): Uint32Array {
  let pixels = tables.get(name)
  if (!pixels) tables.set(name, (pixels = Uint32Array.from({ length: size }, (_, i) => packed(colour(i / (size - 1))))))
  return pixels
}

const FINE = 1024

/** Return the pixels for a brightness from 0 to 1, in 1024 steps. */
export function pixels(palette: Palette): Uint32Array {
  return table(palette, (t) => interpolate(STOPS[palette], t), FINE)
}

/** Return the pixels for a difference from −1 to 1, in 1024 steps; zero is white. */
export function divergingPixels(): Uint32Array {
  return table('diverging', (t) => interpolate(DIVERGING, t), FINE)
}

/** Return a pixel for each byte of √weight, so that the atlas is painted without decoding any weight. */
export function bytePixels(palette: Palette, scale: Scale, least: number): Uint32Array {
  const table = pixels(palette)
  return Uint32Array.from(WEIGHT_OF_BYTE, (weight) => table[shade(weight < least ? 0 : brightness(weight, scale))]!)
}

/** Return the index into a table of 1024 pixels for a number from 0 to 1. */
export function shade(t: number): number {
  return Math.round(t * (FINE - 1))
}

/** Return the CSS colour of a brightness. */
export function css(palette: Palette, t: number): string {
  return `rgb(${interpolate(STOPS[palette], t).join(' ')})`
}

/** Return the CSS colour of a difference between −1 and 1. */
export function divergingCss(t: number): string {
  return `rgb(${interpolate(DIVERGING, (t + 1) / 2).join(' ')})`
}

/** Return a CSS gradient of a palette, for a legend. */
export function gradient(palette: Palette | 'diverging'): string {
  const stops = palette === 'diverging' ? DIVERGING : STOPS[palette]
  return `linear-gradient(to right, ${stops.map((stop) => `rgb(${stop.join(' ')})`).join(', ')})`
}
