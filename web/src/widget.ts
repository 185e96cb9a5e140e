/** The explorer for notebooks (anywidget) and for self-contained pages that hold their answers. */

import { mount, unmount } from 'svelte'
import App from './App.svelte'
import { written } from './lib/address'
import { Explorer } from './lib/explorer.svelte'
import { KernelTransport, RecordedTransport, type Kernel, type Recording } from './lib/transport'

const SAVE_AFTER_MS = 300

/** The state to begin with: what the hash says, and what the notebook named beside it. */
function beginning(kernel: Kernel): string {
  const said = new URLSearchParams(String(kernel.get('state') ?? '').replace(/^#/, ''))
  for (const name of ['source', 'model']) {
    const value = kernel.get(name)
    if (typeof value === 'string' && value && !said.has(name)) said.set(name, value)
  }
  return said.toString()
}

function render({ model, el }: { model: Kernel; el: HTMLElement }): () => void {
  const look = new Explorer(new KernelTransport(model), beginning(model))
  const height = Number(model.get('height')) || 720
  const app = mount(App, { target: el, props: { look, height } })
  let timer: ReturnType<typeof setTimeout> | undefined
  const stop = look.watch(() => {
    const state = written(look.state)
    clearTimeout(timer)
    timer = setTimeout(() => {
      model.set('state', state)
      model.save_changes()
    }, SAVE_AFTER_MS)
  })
  return () => {
    clearTimeout(timer)
    stop()
    look.close()
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
  const look = new Explorer(new RecordedTransport(recordings), state)
  mount(App, { target: element, props: { look, height } })
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
