'use strict'

// Memory stays the same over openings, iterators, snapshots and calls that fail. memory.js ROUNDS
//
// Run with --expose-gc. The first tenth of the rounds is not counted.

const fs = require('fs')
const os = require('os')
const path = require('path')
const { EskerLevel } = require('esker-level')

const rounds = Number(process.argv[2])
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-memory-'))
const fails = async (promise) => promise.then(() => { throw new Error('it did not fail') }, () => {})

async function round (db) {
  const snapshot = db.snapshot()
  const iterator = db.iterator({ snapshot })
  await iterator.next()
  await fails(db.put('k'.repeat(2000), 'v'))
  await fails(db.batch([{ type: 'put', key: 'k', value: 'v'.repeat(1 << 21) }]))
  await fails(db.get(null))
  await db.batch([{ type: 'put', key: 'k', value: Buffer.alloc(1000) }], { valueEncoding: 'buffer' })
  await Promise.all([db.get('k', { valueEncoding: 'buffer' }), db.get('k', { snapshot }), db.getMany(['k', 'l']), db.has('k')])
  db.getSync('k')
  // One of two is left to the collector.
  if (db.even) await iterator.close()
  await snapshot.close()
  await iterator.close()
  db.even = !db.even
}

async function main () {
  const location = path.join(scratch, 'db')
  const options = { memoryBytes: 16 << 20 }
  const opening = Math.max(1, Math.floor(rounds / 100))
  let first = 0
  let db = new EskerLevel(location, options)
  await db.open()
  for (let n = 0; n < rounds; n++) {
    await round(db)
    if (n % opening === 0) {
      // It waits for a second before it says that the database is locked.
      if (n % (opening * 10) === 0) await fails(new EskerLevel(location, options).open())
      await fails(new EskerLevel(path.join(scratch, 'none'), { ...options, createIfMissing: false }).open())
      await db.close()
      db = new EskerLevel(location, options)
      await db.open()
    }
    if (n === Math.floor(rounds / 10)) {
      global.gc()
      first = process.memoryUsage().rss
    }
  }
  await db.close()
  global.gc()
  await new Promise(setImmediate)
  global.gc()
  const grown = (process.memoryUsage().rss - first) / (1 << 20)
  console.log(`${rounds} rounds: ${grown.toFixed(1)} MiB more than after a tenth of them`)
  fs.rmSync(scratch, { recursive: true })
  if (grown > 24) process.exitCode = 1
}

main()
