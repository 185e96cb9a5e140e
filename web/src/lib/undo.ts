/** Undo and redo. */

export class Undo<T> {
  private before: T[] = []
  private after: T[] = []

  /** Save the current state before a change. */
  save(state: T): void {
    this.before.push(state)
    this.after = []
  }

  /** Return the previous state, if there is one. */
  undo(current: T): T | undefined {
    const state = this.before.pop()
    if (state !== undefined) this.after.push(current)
    return state
  }

  /** Return the state that was undone last, unless something was changed since. */
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
