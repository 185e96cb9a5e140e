/** Entry of the page that `regard look` serves. */

import { mount } from 'svelte'
import App from './App.svelte'
import { syncAddress } from './lib/history.svelte'
import { Explorer } from './lib/explorer.svelte'
import { SocketTransport, type Transport } from './lib/transport'
import './page.css'

async function transport(): Promise<Transport> {
  if (import.meta.env.DEV && location.search === '?mock') return new (await import('./lib/mock')).MockTransport(15)
  const address = new URL('look', location.href)
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:'
  address.hash = ''
  return new SocketTransport(address.href)
}

const explorer = new Explorer(await transport(), location.hash)
syncAddress(explorer)
mount(App, { target: document.getElementById('regard')!, props: { explorer } })
