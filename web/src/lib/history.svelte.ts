/** Keeps the address true to the state, and the state true to the address when somebody goes back. */

import { understood, written, type State } from './address'
import type { Explorer } from './explorer.svelte'

/** What changes all the time while somebody types or drags: no step of its own in the history. */
const PASSING = ['source', 'target', 'threshold', 'top', 'pin', 'step', 'count'] as const satisfies readonly (keyof State)[]

/** Whether going from one state to another is a step that one would want to go back. */
export function isStep(before: State, after: State): boolean {
  const settled = (state: State) => {
    const rest: Partial<State> = { ...state }
    for (const name of PASSING) Reflect.deleteProperty(rest, name)
    return JSON.stringify(rest)
  }
  return settled(before) !== settled(after)
}

/** Write the state into the address from now on. */
export function keepAddress(look: Explorer): () => void {
  let before: State = $state.snapshot(look.state)
  let first = true
  const stop = $effect.root(() => {
    $effect(() => {
      const state = $state.snapshot(look.state)
      const hash = `#${written(state)}`
      if (hash !== location.hash && hash !== `#${location.hash}`) {
        if (!first && !look.unasked && isStep(before, state)) history.pushState(null, '', hash)
        else history.replaceState(null, '', hash)
      }
      before = state
      look.unasked = false
      first = !look.models.length
    })
  })
  const heed = () => {
    const state = understood(location.hash)
    before = state
    Object.assign(look.state, state)
  }
  window.addEventListener('popstate', heed)
  window.addEventListener('hashchange', heed)
  return () => {
    stop()
    window.removeEventListener('popstate', heed)
    window.removeEventListener('hashchange', heed)
  }
}
