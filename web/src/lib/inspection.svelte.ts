/** One sentence and its output, with all attention weights; filled frame by frame while the answer arrives. */

import type {
  AttentionMessage, HeadFacts, HeadsMessage, Part, ResultMessage, Token, TokensMessage,
} from './messages'
import type { Layer } from './weights'
import type { Frame } from './wire'

/** Return the log-probability of all tokens after a prompt. */
export function outputLogprob(logprobs: readonly number[], prompt: number): number {
  return logprobs.slice(prompt).reduce((sum, logprob) => sum + logprob, 0)
}

export class Inspection {
  source: readonly Token[] = $state.raw([])
  target: readonly Token[] = $state.raw([])
  layers: ReadonlyMap<string, Layer> = $state.raw(new Map())
  facts: readonly HeadFacts[] = $state.raw([])
  result: ResultMessage | null = $state.raw(null)
  done = $state(false)
  /** Why there is no answer. */
  failed = $state('')

  /** Add one frame of the answer. */
  add({ message, tensors }: Frame): void {
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
      case 'attention':
        this.addAttention(message as AttentionMessage, tensors.get('weights')?.data as Uint8Array)
        break
      case 'heads':
        this.facts = (message as HeadsMessage).heads
        break
    }
    if (message.last) this.done = true
  }

  private addAttention({ part, layer, heads, queries, keys }: AttentionMessage, data: Uint8Array): void {
    this.layers = new Map(this.layers).set(`${part}/${layer}`, { heads, queries, keys, data })
  }

  layer(part: Part, layer: number): Layer | undefined {
    return this.layers.get(`${part}/${layer}`)
  }

  /** Return the layers of a part up to this one; an empty list while one of them is missing. */
  upTo(part: Part, layer: number): Layer[] {
    const layers = Array.from({ length: layer + 1 }, (_, number) => this.layer(part, number))
    return layers.every((data) => data !== undefined) ? layers : []
  }

  /** Number of target tokens that are the prompt of a language model; 0 for a translation. */
  get prompt(): number {
    return this.result?.prompt ?? 0
  }

  get ids(): number[] {
    return this.target.map(({ id }) => id)
  }

  /** The log-probability of the output: of the target, without the prompt of a language model. */
  get total(): number {
    return this.result ? outputLogprob(this.result.logprobs, this.prompt) : 0
  }
}
