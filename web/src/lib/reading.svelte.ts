/** One sentence as a model read and wrote it: filled frame by frame while the answer comes in. */

import type {
  AttentionMessage, HeadFacts, HeadsMessage, Part, ResultMessage, Token, TokensMessage,
} from './messages'
import type { Layer } from './weights'
import type { Frame } from './wire'

export class Reading {
  source: readonly Token[] = $state.raw([])
  target: readonly Token[] = $state.raw([])
  layers: ReadonlyMap<string, Layer> = $state.raw(new Map())
  facts: readonly HeadFacts[] = $state.raw([])
  result: ResultMessage | null = $state.raw(null)
  done = $state(false)
  /** Why there is no answer, in a sentence. */
  failed = $state('')

  /** Take in one frame of the answer. */
  take({ message, tensors }: Frame): void {
    switch (message.kind) {
      case 'tokens':
        this.source = (message as TokensMessage).tokens
        break
      case 'target':
        this.target = (message as TokensMessage).tokens
        break
      case 'result':
        this.result = message as ResultMessage
        this.source = this.result.source
        this.target = this.result.target
        break
      case 'encoder':
      case 'attention':
        this.takeAttention(message as AttentionMessage, tensors.get('weights')?.data as Uint8Array)
        break
      case 'heads':
        this.facts = (message as HeadsMessage).heads
        break
    }
    if (message.last) this.done = true
  }

  private takeAttention({ part, layer, heads, queries, keys }: AttentionMessage, data: Uint8Array): void {
    this.layers = new Map(this.layers).set(`${part}/${layer}`, { heads, queries, keys, data })
  }

  layer(part: Part, layer: number): Layer | undefined {
    return this.layers.get(`${part}/${layer}`)
  }

  /** The layers of a part from the lowest up to this one; nothing if one of them is not there yet. */
  upTo(part: Part, layer: number): Layer[] {
    const found = Array.from({ length: layer + 1 }, (_, each) => this.layer(part, each))
    return found.every((each) => each !== undefined) ? found : []
  }

  get ids(): number[] {
    return this.target.map(({ id }) => id)
  }

  /** The log-probability of the whole target. */
  get total(): number {
    return this.result?.logprobs.reduce((sum, each) => sum + each, 0) ?? 0
  }
}
