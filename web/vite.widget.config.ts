import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// One ES module and one style sheet, for anywidget and for self-contained HTML files.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../src/regard/web',
    emptyOutDir: false,
    copyPublicDir: false,
    target: 'es2022',
    lib: { entry: 'src/widget.ts', formats: ['es'], fileName: () => 'widget.js', cssFileName: 'widget' },
  },
})
