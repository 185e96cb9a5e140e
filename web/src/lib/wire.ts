/**
 * Read a frame: a safetensors file in memory whose metadata contain a JSON message.
 *
 * Eight bytes of length, a JSON header, then the data of all tensors. All transports use this one reader.
 */

export type Numbers = Uint8Array | Int32Array | Float32Array

export interface Tensor {
  readonly shape: readonly number[]
  readonly data: Numbers
}

export interface Message {
  readonly id: number
  readonly kind: string
  readonly last: boolean
}

export interface Frame {
  readonly message: Message
  readonly tensors: ReadonlyMap<string, Tensor>
}

interface Entry {
  dtype: string
  shape: number[]
  data_offsets: [number, number]
}

const LENGTH_BYTES = 8

/** Decode a frame, or throw an `Error` that says what is wrong with the bytes. */
export function readFrame(bytes: ArrayBuffer | ArrayBufferView): Frame {
  const view = ArrayBuffer.isView(bytes)
    ? new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new DataView(bytes)
  if (view.byteLength < LENGTH_BYTES) throw new Error(`a frame has at least 8 bytes, this has ${view.byteLength}`)
  const length = Number(view.getBigUint64(0, true))
  const start = LENGTH_BYTES + length
  if (start > view.byteLength) throw new Error(`the header ends at byte ${start}, the frame at ${view.byteLength}`)

  const header = JSON.parse(text(view, LENGTH_BYTES, length)) as Record<string, unknown>
  const metadata = header['__metadata__'] as { message?: string } | undefined
  if (metadata?.message === undefined) throw new Error('the frame has no message')
  const tensors = new Map<string, Tensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name !== '__metadata__') tensors.set(name, readTensor(view, start, name, entry as Entry))
  }
  return { message: JSON.parse(metadata.message) as Message, tensors }
}

function text(view: DataView, offset: number, length: number): string {
  return new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset + offset, length))
}

function readTensor(view: DataView, start: number, name: string, entry: Entry): Tensor {
  const [from, to] = entry.data_offsets
  if (start + to > view.byteLength) throw new Error(`tensor '${name}' ends after the frame does`)
  const offset = view.byteOffset + start
  // A copy, because typed arrays need aligned data, and a buffer of a notebook may start anywhere.
  const buffer = view.buffer.slice(offset + from, offset + to) as ArrayBuffer
  return { shape: entry.shape, data: numbers(entry.dtype, buffer, name) }
}

function numbers(dtype: string, buffer: ArrayBuffer, name: string): Numbers {
  switch (dtype) {
    case 'U8':
    case 'BOOL':
      return new Uint8Array(buffer)
    case 'I32':
      return new Int32Array(buffer)
    case 'F32':
      return new Float32Array(buffer)
    case 'F16':
      return Float32Array.from(new Uint16Array(buffer), half)
    default:
      throw new Error(`tensor '${name}' is of type ${dtype}; a frame has U8, I32, F16 or F32`)
  }
}

/** The number that sixteen bits of IEEE 754 stand for. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 0x1f
  const fraction = bits & 0x3ff
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
