/** Keep the URL in step with the state, and the state with the URL when the user navigates. */

import { formatState, parseState, type State } from './address'
import type { Explorer } from './explorer.svelte'

/** Fields that change continuously while the user types or drags: they make no history entry. */
const CONTINUOUS = ['inputs', 'target', 'threshold', 'top', 'pin', 'step', 'count'] as const satisfies readonly (keyof State)[]

/** Return whether the difference of two states is a history entry of its own. */
export function isHistoryStep(before: State, after: State): boolean {
  const settled = (state: State) => {
    const rest: Partial<State> = { ...state }
    for (const name of CONTINUOUS) Reflect.deleteProperty(rest, name)
    return JSON.stringify(rest)
  }
  return settled(before) !== settled(after)
}

/** Write every change of the state to the URL. */
export function syncAddress(explorer: Explorer): () => void {
  let before: State = $state.snapshot(explorer.state)
  let first = true
  const stop = $effect.root(() => {
    $effect(() => {
      const state = $state.snapshot(explorer.state)
      const hash = `#${formatState(state)}`
      if (hash !== location.hash && hash !== `#${location.hash}`) {
        if (!first && !explorer.automatic && isHistoryStep(before, state)) history.pushState(null, '', hash)
        else history.replaceState(null, '', hash)
      }
      before = state
      explorer.automatic = false
      first = !explorer.models.length
    })
  })
  const navigated = () => {
    const state = parseState(location.hash)
    before = state
    Object.assign(explorer.state, state)
  }
  window.addEventListener('popstate', navigated)
  window.addEventListener('hashchange', navigated)
  return () => {
    stop()
    window.removeEventListener('popstate', navigated)
    window.removeEventListener('hashchange', navigated)
  }
}
