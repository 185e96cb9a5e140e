/// <reference types="vitest/config" />
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// The page that `regard look` serves. REGARD_LOOK names a running server for `npm run dev`.
const server = process.env['REGARD_LOOK'] ?? 'http://127.0.0.1:8765'

export default defineConfig({
  plugins: [svelte()],
  base: './',
  build: {
    outDir: '../src/regard/web/page',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/look': { target: server, ws: true, changeOrigin: true, headers: { origin: server } } } },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
})
