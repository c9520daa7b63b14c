'use strict'

// Esker beside classic-level: thousand calls or rows a second, in one process, in turn.
//
//     compare.js [ROUNDS [ENCODING]]
//
// 20,000 rows of 100 and of 1,000 bytes in memory, with keys of 16 bytes; values are strings, or of another encoding.
// Each engine has its defaults, but for the memory: 256 MiB for Esker, and a cache of 256 MiB for classic-level. Figures are
// medians of the rounds; above 1 Esker is ahead. ONLY=TEXT in the environment measures the calls with this in their names.

const fs = require('fs')
const os = require('os')
const path = require('path')
const { EskerLevel } = require('esker-level')
const { ClassicLevel } = require('classic-level')

const ROWS = 20000
const TOGETHER = 100
const rounds = Number(process.argv[2] ?? 7)
const valueEncoding = process.argv[3] ?? 'utf8'
const keys = Array.from({ length: ROWS }, (_, i) => 'key-' + String(i).padStart(12, '0'))
// The same order for both.
let seed = 1
const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647
const order = keys.map((_, i) => i)
for (let i = ROWS - 1; i > 0; i--) {
  const j = Math.floor(random() * (i + 1))
  ;[order[i], order[j]] = [order[j], order[i]]
}

const calls = {
  'put, one at a time': async (db, value) => {
    for (let i = 0; i < 4000; i++) await db.put(keys[order[i]], value)
    return 4000
  },
  'put, 100 at a time': async (db, value) => {
    for (let i = 0; i < ROWS; i += TOGETHER) {
      await Promise.all(order.slice(i, i + TOGETHER).map((at) => db.put(keys[at], value)))
    }
    return ROWS
  },
  'batch of 100 puts, a row': async (db, value) => {
    for (let i = 0; i < ROWS; i += TOGETHER) {
      await db.batch(order.slice(i, i + TOGETHER).map((at) => ({ type: 'put', key: keys[at], value })))
    }
    return ROWS
  },
  'get, one at a time': async (db) => {
    for (let i = 0; i < 8000; i++) await db.get(keys[order[i]])
    return 8000
  },
  'get, 100 at a time': async (db) => {
    for (let i = 0; i < ROWS; i += TOGETHER) {
      await Promise.all(order.slice(i, i + TOGETHER).map((at) => db.get(keys[at])))
    }
    return ROWS
  },
  getSync: async (db) => {
    for (let i = 0; i < ROWS; i++) db.getSync(keys[order[i]])
    return ROWS
  },
  'getMany of 100, a row': async (db) => {
    for (let i = 0; i < ROWS; i += TOGETHER) await db.getMany(order.slice(i, i + TOGETHER).map((at) => keys[at]))
    return ROWS
  },
  'has, 100 at a time': async (db) => {
    for (let i = 0; i < ROWS; i += TOGETHER) {
      await Promise.all(order.slice(i, i + TOGETHER).map((at) => db.has(keys[at])))
    }
    return ROWS
  },
  'iterator, nextv(1000)': async (db) => {
    const iterator = db.iterator()
    let rows = 0
    for (let some; (some = await iterator.nextv(1000)).length > 0;) rows += some.length
    await iterator.close()
    return rows
  },
  'iterator, all()': async (db) => (await db.iterator().all()).length,
  'iterator, for await': async (db) => {
    let rows = 0
    // eslint-disable-next-line no-unused-vars
    for await (const [key, value] of db.iterator()) rows++
    return rows
  },
  'keys, all()': async (db) => (await db.keys().all()).length,
  'iterator, 50 rows': async (db) => {
    for (let i = 0; i < 400; i++) await db.iterator({ gte: keys[order[i]], limit: 50 }).all()
    return 400
  }
}

function median (numbers) {
  return numbers.sort((a, b) => a - b)[numbers.length >> 1]
}

// Opens both with all rows.
async function opened (scratch, size, value) {
  const engines = [
    new EskerLevel(path.join(scratch, `esker-${size}`), { valueEncoding, memoryBytes: 256 << 20 }),
    new ClassicLevel(path.join(scratch, `classic-${size}`), { valueEncoding, cacheSize: 256 << 20 })
  ]
  for (const db of engines) {
    await db.open()
    for (let i = 0; i < ROWS; i += 1000) {
      await db.batch(keys.slice(i, i + 1000).map((key) => ({ type: 'put', key, value })))
    }
  }
  return engines
}

// The cells of a call for both engines, and their ratio.
async function measured (call, engines, value) {
  const rates = [[], []]
  for (let round = 0; round < rounds; round++) {
    for (const at of round % 2 === 0 ? [0, 1] : [1, 0]) {
      const began = performance.now()
      const done = await call(engines[at], value)
      rates[at].push(done / (performance.now() - began))
    }
  }
  const [esker, classic] = rates.map(median)
  return [esker.toPrecision(3), classic.toPrecision(3), (esker / classic).toFixed(2)].map((cell) => String(Number(cell)))
}

async function main () {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-compare-'))
  const sizes = [100, 1000]
  const values = sizes.map((size) => valueEncoding === 'utf8' ? 'v'.repeat(size) : Buffer.alloc(size, 'v'))
  const engines = []
  for (const [i, size] of sizes.entries()) engines.push(await opened(scratch, size, values[i]))
  console.log('| call | Esker, 100 B | classic-level | ratio | Esker, 1,000 B | classic-level | ratio |')
  console.log('| --- | ---: | ---: | ---: | ---: | ---: | ---: |')
  for (const [name, call] of Object.entries(calls)) {
    if (!name.includes(process.env.ONLY ?? '')) continue
    const cells = []
    for (const i of sizes.keys()) cells.push(...await measured(call, engines[i], values[i]))
    console.log(`| ${[name, ...cells].join(' | ')} |`)
  }
  for (const db of engines.flat()) await db.close()
  fs.rmSync(scratch, { recursive: true })
}

main()
