'use strict'

// Esker beside classic-level: calls a second, in one process, in turn. compare.js [ROUNDS]
//
// Rows of 100 and of 1,000 bytes in memory: 20,000 of them, with keys of 16 bytes. Values are buffers or strings. Each
// engine has its defaults, but for the memory: 256 MiB for Esker, a cache of 256 MiB and the default write buffer for
// classic-level. Figures are medians of the rounds, which alternate between the two; above 1 Esker is ahead.

const fs = require('fs')
const os = require('os')
const path = require('path')
const { EskerLevel } = require('esker-level')
const { ClassicLevel } = require('classic-level')

const ROWS = 20000
const TOGETHER = 100
const rounds = Number(process.argv[2] ?? 5)
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

async function main () {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-compare-'))
  const only = process.env.ONLY
  console.log('| values | call | Esker, 1/s | classic-level, 1/s | ratio |')
  console.log('| --- | --- | ---: | ---: | ---: |')
  for (const valueEncoding of ['buffer', 'utf8']) {
    for (const size of [100, 1000]) {
      const value = valueEncoding === 'utf8' ? 'v'.repeat(size) : Buffer.alloc(size, 'v')
      const engines = [
        new EskerLevel(path.join(scratch, `esker-${valueEncoding}-${size}`), { valueEncoding, memoryBytes: 256 << 20 }),
        new ClassicLevel(path.join(scratch, `classic-${valueEncoding}-${size}`), { valueEncoding, cacheSize: 256 << 20 })
      ]
      for (const db of engines) {
        await db.open()
        for (let i = 0; i < ROWS; i += 1000) {
          await db.batch(keys.slice(i, i + 1000).map((key) => ({ type: 'put', key, value })))
        }
      }
      for (const [name, call] of Object.entries(calls)) {
        if (only && !name.includes(only)) continue
        const rates = [[], []]
        for (let round = 0; round < rounds; round++) {
          for (const at of round % 2 === 0 ? [0, 1] : [1, 0]) {
            const began = performance.now()
            const done = await call(engines[at], value)
            rates[at].push(done / (performance.now() - began) * 1000)
          }
        }
        const [esker, classic] = rates.map(median)
        const shown = (rate) => Math.round(rate).toLocaleString('en-US')
        const ratio = (esker / classic).toFixed(2)
        console.log(`| ${size} B, ${valueEncoding} | ${name} | ${shown(esker)} | ${shown(classic)} | ${ratio} |`)
      }
      for (const db of engines) await db.close()
    }
  }
  fs.rmSync(scratch, { recursive: true })
}

main()
