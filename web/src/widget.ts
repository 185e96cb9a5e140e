/** Entry for notebooks (anywidget) and for self-contained pages with recorded answers. */

import { mount, unmount } from 'svelte'
import App from './App.svelte'
import { formatState } from './lib/address'
import { Explorer } from './lib/explorer.svelte'
import { KernelTransport, RecordedTransport, type Kernel, type Recording } from './lib/transport'

const SAVE_AFTER_MS = 300

/** Return the initial state: the widget's `state`, completed by its `text` and `model`. */
function initialState(kernel: Kernel): string {
  const values = new URLSearchParams(String(kernel.get('state') ?? '').replace(/^#/, ''))
  for (const [name, trait] of [['source', 'text'], ['text', 'text'], ['history', 'text'], ['model', 'model']] as const) {
    const value = kernel.get(trait)
    if (typeof value === 'string' && value && !values.has(name)) values.set(name, value)
  }
  return values.toString()
}

function render({ model, el }: { model: Kernel; el: HTMLElement }): () => void {
  const explorer = new Explorer(new KernelTransport(model), initialState(model))
  const height = Number(model.get('height')) || 720
  const app = mount(App, { target: el, props: { explorer, height } })
  let timer: ReturnType<typeof setTimeout> | undefined
  const stop = explorer.watch(() => {
    const state = formatState(explorer.state)
    clearTimeout(timer)
    timer = setTimeout(() => {
      model.set('state', state)
      model.save_changes()
    }, SAVE_AFTER_MS)
  })
  return () => {
    clearTimeout(timer)
    stop()
    explorer.close()
    void unmount(app)
  }
}

export interface Recorded {
  recordings: readonly Recording[]
  state?: string
  height?: number | null
}

/** Show recorded answers in an element. */
export function mountRecorded(element: HTMLElement, { recordings, state = '', height = null }: Recorded): void {
  const explorer = new Explorer(new RecordedTransport(recordings), state)
  mount(App, { target: element, props: { explorer, height } })
}

declare global {
  interface Window {
    __REGARD_FRAMES__?: Recording[]
    __REGARD_STATE__?: string
  }
}

if (typeof window !== 'undefined' && window.__REGARD_FRAMES__) {
  const element = document.getElementById('regard') ?? document.body
  mountRecorded(element, { recordings: window.__REGARD_FRAMES__, state: window.__REGARD_STATE__ ?? '' })
}

export default { render }
