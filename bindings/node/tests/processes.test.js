'use strict'

const assert = require('assert/strict')
const { fork } = require('child_process')
const fs = require('fs')
const { test } = require('node:test')
const { Worker } = require('worker_threads')
const { opened, place, program, run, start } = require('./support')

// How often a worker or a process is ended in the middle.
const ENDS = Number(process.env.ESKER_ENDS ?? 12)

const keysOf = async (location) => {
  const db = await opened({}, location)
  const keys = await db.keys().all()
  await db.close()
  return keys
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// Loads that never end by themselves.
const LOADS = {
  reads: `for (let i = 0; ; i++) await Promise.all([db.get('0'), db.has('1'), db.getMany(['0', '1'])])`,
  'reads at once': `for (;;) { db.getSync('0'); await db.get('0') }`,
  writes: `for (let i = 0; ; i++) await Promise.all([db.put(String(i % 1000), 'v'.repeat(i % 2000)), db.put('s', '', { sync: i % 9 === 0 })])`,
  scans: `for (;;) { const all = []; for (let i = 0; i < 4; i++) all.push(db.iterator().all()); await Promise.all(all) }`,
  snapshots: `for (;;) { const snapshot = db.snapshot(); await db.get('0', { snapshot }); db.iterator({ snapshot }).next() }`,
  openings: `for (let i = 0; ; i++) { const other = new EskerLevel(location + '-' + i % 3, small); await other.put('k', 'v'); await other.close() }`,
  maintenance: `for (;;) { await Promise.all([db.put('k', 'v'), db.compact(), db.stats(), db.sync()]) }`
}

const loaded = (load, when) => `(async () => {
  const db = new EskerLevel(location, small)
  await db.batch(Array.from({ length: 2000 }, (_, i) => ({ type: 'put', key: String(i), value: 'v'.repeat(300) })))
  ${when}
  ${load}
})()`

for (const [name, load] of Object.entries(LOADS)) {
  test(`a worker is terminated in the middle of ${name}`, async () => {
    const location = place()
    const source = program(loaded(load, "require('worker_threads').parentPort.postMessage('loaded')"))
      .replace('process.argv[1]', JSON.stringify(location))
    for (let round = 0; round < ENDS / 3; round++) {
      const worker = new Worker(source, { eval: true })
      await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
      await pause(round * 3)
      await worker.terminate()
      // The end of the worker was that of its database.
      assert.ok((await keysOf(location)).length >= 2000)
    }
  })

  test(`a process exits in the middle of ${name}`, async () => {
    const location = place()
    for (const delay of [0, 7]) {
      const { status, signal, stderr } = run(loaded(load, `setTimeout(() => process.exit(7), ${delay}); setImmediate(() => {})`)
        // A load that never turns the loop ends by its own count.
        .replaceAll('for (;;)', 'for (let n = 0; ; n++)'), location)
      assert.deepEqual({ status, signal, stderr }, { status: 7, signal: null, stderr: '' })
      assert.ok((await keysOf(location)).length >= 2000)
    }
  })
}

test('a process that exits without a close loses nothing', async () => {
  const location = place()
  const { status, stderr } = run(`(async () => {
    const db = new EskerLevel(location, small)
    for (let i = 0; i < 100; i++) await db.put(String(i), 'v')
    db.iterator().next()
    process.exit(3)
  })()`, location)
  assert.deepEqual({ status, stderr }, { status: 3, stderr: '' })
  assert.equal((await keysOf(location)).length, 100)
})

test('a process ends when nothing is left to do, closed or not', async () => {
  const { status, stderr } = run("new EskerLevel(location, small).put('k', 'v')", place())
  assert.deepEqual({ status, stderr }, { status: 0, stderr: '' })
})

test('a killed process loses no acknowledged write', async () => {
  for (let round = 0; round < ENDS / 3; round++) {
    const location = place()
    const child = start(`(async () => {
      const db = new EskerLevel(location, small)
      await db.open()
      for (let i = 0; ; i++) {
        await Promise.all([db.put('a' + i, 'v'), db.put('b' + i, 'v', { sync: i % 8 === 0 }), db.batch([{ type: 'put', key: 'c' + i, value: 'v' }])])
        require('fs').writeSync(1, i + '\\n')
      }
    })()`, location)
    let said = ''
    child.stdout.on('data', (data) => { said += data })
    while (said.split('\n').length < 50) await pause(5)
    child.kill('SIGKILL')
    assert.equal((await child.ended).signal, 'SIGKILL')
    await pause(20)
    const last = Number(said.split('\n').at(-2))
    const keys = new Set(await keysOf(location))
    for (let i = 0; i <= last; i++) for (const of of 'abc') assert.ok(keys.has(of + i), `${of}${i} of ${last}`)
  }
})

test('a second process is told that the database is locked', async () => {
  const db = await opened()
  const { stdout } = run("new EskerLevel(location, small).open().catch((error) => console.log(error.code, error.cause.code))", db.location)
  assert.equal(stdout.trim(), 'LEVEL_DATABASE_NOT_OPEN LEVEL_LOCKED')
  await db.close()
})

test('a second worker is told that the database is locked', async () => {
  const db = await opened()
  const source = program("new EskerLevel(location, small).open().catch((error) => require('worker_threads').parentPort.postMessage(error.cause.code))")
  const worker = new Worker(source.replace('process.argv[1]', JSON.stringify(db.location)), { eval: true })
  assert.equal(await new Promise((resolve) => worker.once('message', resolve)), 'LEVEL_LOCKED')
  await worker.terminate()
  await db.put('k', 'v')
  await db.close()
})

test('workers have databases of their own at the same time', async () => {
  const work = program("(async () => { const db = new EskerLevel(location, small); for (let i = 0; i < 300; i++) await db.put(String(i), 'v'); await db.close() })()")
  const locations = [place(), place(), place()]
  const codes = await Promise.all(locations.map((location) => new Promise((resolve) => {
    new Worker(work.replace('process.argv[1]', JSON.stringify(location)), { eval: true }).once('exit', resolve)
  })))
  assert.deepEqual(codes, [0, 0, 0])
  for (const location of locations) assert.equal((await keysOf(location)).length, 300)
})

test('a forked child has a database of its own beside its parent', async () => {
  const db = await opened()
  const file = place() + '.js'
  const location = place()
  fs.writeFileSync(file, program("new EskerLevel(location, small).put('k', 'v').then(() => process.send('put'))").replace('process.argv[1]', JSON.stringify(location)))
  const child = fork(file)
  const [message] = await Promise.all([new Promise((resolve) => child.once('message', resolve)), db.put('k', 'v')])
  assert.equal(message, 'put')
  child.disconnect()
  assert.equal(await new Promise((resolve) => child.once('exit', resolve)), 0)
  assert.deepEqual(await keysOf(location), ['k'])
  await db.close()
})

test('signals come to the program while it reads and writes', async () => {
  const location = place()
  const child = start(`(async () => {
    const db = new EskerLevel(location, small)
    let ends = false
    process.on('SIGTERM', () => { ends = true })
    let hups = 0
    process.on('SIGHUP', () => hups++)
    await db.open()
    console.log('open')
    for (let i = 0; !ends; i++) { await db.put(String(i % 100), 'v'); await db.iterator().all(); await db.get('0') }
    await db.close()
    console.log(hups > 0 ? 'closed' : 'no SIGHUP')
  })()`, location)
  assert.equal(await child.said(), 'open')
  for (let i = 0; i < 20; i++) {
    child.kill('SIGHUP')
    await pause(2)
  }
  const closed = child.said()
  child.kill('SIGTERM')
  assert.equal(await closed, 'closed')
  assert.deepEqual(await child.ended, { code: 0, signal: null })
})

test('a signal without a handler ends the program, and nothing is lost', async () => {
  const location = place()
  const child = start(`(async () => {
    const db = new EskerLevel(location, small)
    for (let i = 0; ; i++) { await db.put(String(i), 'v'); if (i === 50) console.log('put') }
  })()`, location)
  await child.said()
  child.kill('SIGINT')
  assert.equal((await child.ended).signal, 'SIGINT')
  assert.ok((await keysOf(location)).length > 50)
})

test('garbage is collected in the middle of calls', async () => {
  const { status, stderr, stdout } = run(`(async () => {
    for (let round = 0; round < 6; round++) {
      let db = new EskerLevel(location + round, small)
      await db.batch(Array.from({ length: 500 }, (_, i) => ({ type: 'put', key: String(i), value: 'v'.repeat(100) })))
      const pending = []
      for (let i = 0; i < 30; i++) {
        pending.push(db.iterator().all(), db.get('1'), db.put('k' + i, 'v'), db.getMany(['1', '2']))
        const snapshot = db.snapshot()
        pending.push(db.get('1', { snapshot }), db.iterator({ snapshot }).next())
        db.batch().put('x', 'y')
        gc()
      }
      if (round % 2 === 0) { await Promise.all(pending); await db.close() }
      db = null
      gc()
      await new Promise(setImmediate)
      gc()
    }
    console.log('done')
  })()`, place(), ['--expose-gc'])
  assert.deepEqual({ status, stderr, stdout }, { status: 0, stderr: '', stdout: 'done\n' })
})
