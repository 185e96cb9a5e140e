/** The page that `regard look` serves. */

import { mount } from 'svelte'
import App from './App.svelte'
import { keepAddress } from './lib/history.svelte'
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

const look = new Explorer(await transport(), location.hash)
keepAddress(look)
mount(App, { target: document.getElementById('regard')!, props: { look } })
