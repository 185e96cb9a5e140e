/** Timings that tests and benchmarks read: `performance.getEntriesByName('regard:hover')` and others. */

export type Measured =
  | 'tokens' | 'encoder' | 'first-target' | 'next-target' | 'result' | 'head-switch' | 'atlas' | 'hover' | 'what-if' | 'ready'

/** Return the current time in milliseconds. */
export function now(): number {
  return performance.now()
}

/** Record the time from `start` until now. */
export function recordTime(name: Measured, start: number): void {
  performance.measure(`regard:${name}`, { start, end: performance.now() })
}

/** Record the time from `start` until the next frame is on the screen. */
export function recordTimeWhenPainted(name: Measured, start: number): void {
  requestAnimationFrame(() => {
    const channel = new MessageChannel()
    channel.port1.onmessage = () => recordTime(name, start)
    channel.port2.postMessage(null)
  })
}
