import { describe, expect, it } from 'vitest'
import { half, readFrame } from '../src/lib/wire'

/** A frame put together byte by byte, without our own writer. */
function bytes(header: string, data: number[], lead = 0): Uint8Array {
  const text = new TextEncoder().encode(header)
  const whole = new Uint8Array(lead + 8 + text.length + data.length)
  whole[lead] = text.length & 0xff
  whole[lead + 1] = text.length >> 8
  whole.set(text, lead + 8)
  whole.set(data, lead + 8 + text.length)
  return whole.subarray(lead)
}

const MESSAGE = '{"__metadata__":{"message":"{\\"id\\":7,\\"kind\\":\\"row\\",\\"last\\":true}"}'

describe('a frame', () => {
  it('contains a message', () => {
    expect(readFrame(bytes(`${MESSAGE}}`, [])).message).toEqual({ id: 7, kind: 'row', last: true })
  })

  it('contains bytes with their shape', () => {
    const frame = readFrame(bytes(`${MESSAGE},"weights":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}`, [0, 255, 128, 1]))
    expect(frame.tensors.get('weights')).toEqual({ shape: [2, 2], data: Uint8Array.from([0, 255, 128, 1]) })
  })

  it('contains floats and integers at any offset', () => {
    // 1.0 is 00 00 80 3f, and −2 is fe ff ff ff, both little-endian.
    const header = `${MESSAGE},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}}`
    for (const lead of [0, 1, 2, 3]) {
      const { tensors } = readFrame(bytes(header, [0, 0, 0x80, 0x3f, 0xfe, 0xff, 0xff, 0xff], lead))
      expect(tensors.get('a')?.data[0]).toBe(1)
      expect(tensors.get('b')?.data[0]).toBe(-2)
    }
  })

  it('decodes half-precision floats', () => {
    const frame = readFrame(bytes(`${MESSAGE},"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`, [0x00, 0x3c, 0x00, 0xc0]))
    expect(Array.from(frame.tensors.get('h')!.data)).toEqual([1, -2])
  })

  it.each([
    [0x0000, 0], [0x3555, 0.333251953125], [0x0001, 2 ** -24], [0x7bff, 65504], [0x7c00, Infinity], [0xfc00, -Infinity],
  ])('reads the half %i as %d', (bits, number) => {
    expect(half(bits)).toBe(number)
  })

  it('that is invalid is reported', () => {
    expect(() => readFrame(new Uint8Array(3))).toThrow('at least 8 bytes')
    expect(() => readFrame(Uint8Array.from([99, 0, 0, 0, 0, 0, 0, 0, 123]))).toThrow('header ends at byte 107')
    expect(() => readFrame(bytes('{}', []))).toThrow('no message')
    expect(() => readFrame(bytes(`${MESSAGE},"w":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, [1]))).toThrow("'w' ends after")
    expect(() => readFrame(bytes(`${MESSAGE},"w":{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}}`, [1]))).toThrow('Q4')
  })
})
