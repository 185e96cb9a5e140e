/** Times that anybody can read: `performance.getEntriesByName('regard:hover')` and its neighbours. */

export type Measured =
  | 'tokens' | 'encoder' | 'first-target' | 'next-target' | 'result' | 'head-switch' | 'atlas' | 'hover' | 'what-if' | 'ready'

/** A time to count from. */
export function now(): number {
  return performance.now()
}

/** Note how long something took, from `start` to this moment. */
export function measured(name: Measured, start: number): void {
  performance.measure(`regard:${name}`, { start, end: performance.now() })
}

/** Note how long something took, from `start` until what was drawn for it is on the screen. */
export function measuredWhenPainted(name: Measured, start: number): void {
  requestAnimationFrame(() => {
    const channel = new MessageChannel()
    channel.port1.onmessage = () => measured(name, start)
    channel.port2.postMessage(null)
  })
}
