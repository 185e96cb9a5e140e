/** What was done, and can be undone and done again. */

export class Undo<T> {
  private before: T[] = []
  private after: T[] = []

  /** Note the state that is about to be left. */
  leave(state: T): void {
    this.before.push(state)
    this.after = []
  }

  /** The state before this one, if there is one. */
  undo(current: T): T | undefined {
    const state = this.before.pop()
    if (state !== undefined) this.after.push(current)
    return state
  }

  /** The state that was undone last, if nothing else was done since. */
  redo(current: T): T | undefined {
    const state = this.after.pop()
    if (state !== undefined) this.before.push(current)
    return state
  }

  get canUndo(): boolean {
    return this.before.length > 0
  }

  get canRedo(): boolean {
    return this.after.length > 0
  }
}
