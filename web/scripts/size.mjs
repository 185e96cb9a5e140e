// What a browser has to fetch, gzipped: fails over the limit, so that a heavy dependency is noticed at once.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const LIMIT_KB = 300
const AIM_KB = 150
const built = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'src', 'regard', 'web')

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    return statSync(path).isDirectory() ? files(path) : [path]
  })
}

function weigh(name, paths) {
  const kilobytes = paths.reduce((sum, path) => sum + gzipSync(readFileSync(path), { level: 9 }).length, 0) / 1000
  console.log(`${name}: ${kilobytes.toFixed(1)} kB gzipped (aim ${AIM_KB}, limit ${LIMIT_KB})`)
  for (const path of paths) {
    console.log(`  ${relative(built, path)}: ${(gzipSync(readFileSync(path), { level: 9 }).length / 1000).toFixed(1)} kB`)
  }
  return kilobytes
}

const page = weigh('page', files(join(built, 'page')))
const widget = weigh('widget', ['widget.js', 'widget.css'].map((name) => join(built, name)))
if (Math.max(page, widget) > LIMIT_KB) {
  console.error(`The bundle is over ${LIMIT_KB} kB gzipped: see what was added, or split it.`)
  process.exit(1)
}
