'use strict'

const assert = require('assert/strict')
const fs = require('fs')
const path = require('path')
const { test } = require('node:test')
const { EskerLevel } = require('esker-level')
const { opened, place } = require('./support')

const KEY_MAX = 1344
const VALUE_MAX = 1 << 20

test('rows come back in every encoding', async () => {
  const db = await opened()
  for (const valueEncoding of ['utf8', 'buffer', 'view', 'json', 'hex', 'base64']) {
    const value = { buffer: Buffer.from([0, 1, 255]), view: new Uint8Array([0, 255]), json: { a: 1 }, hex: '00ff', base64: 'AP8=' }
    const put = value[valueEncoding] ?? 'ä€😀\u0000'
    await db.put('key', put, { valueEncoding })
    assert.deepEqual(Buffer.from(await db.get('key', { valueEncoding: 'buffer' })), Buffer.from(db.getSync('key', { valueEncoding: 'buffer' })))
    const [got] = await db.getMany(['key'], { valueEncoding })
    for (const each of [await db.get('key', { valueEncoding }), db.getSync('key', { valueEncoding }), got]) {
      assert.deepEqual(ArrayBuffer.isView(each) ? Buffer.from(each) : each, ArrayBuffer.isView(put) ? Buffer.from(put) : put)
    }
  }
  await db.close()
})

test('empty keys and values are kept, in order', async () => {
  const db = await opened()
  await db.batch([{ type: 'put', key: 'a', value: '' }, { type: 'put', key: '', value: 'first' }])
  assert.deepEqual(await db.iterator().all(), [['', 'first'], ['a', '']])
  assert.deepEqual(await db.iterator({ gt: '' }).all(), [['a', '']])
  assert.deepEqual(await db.iterator({ lt: 'a' }).all(), [['', 'first']])
  assert.equal(db.getSync('a'), '')
  assert.equal(db.getSync('a', { valueEncoding: 'buffer' }).length, 0)
  assert.equal((await db.get('', { valueEncoding: 'buffer' })).toString(), 'first')
  await db.del('')
  assert.equal(await db.has(''), false)
  await db.close()
})

test('too long a key or a value is refused with a code, and nothing else is written', async () => {
  const db = await opened()
  const longest = 'k'.repeat(KEY_MAX)
  await db.put(longest, 'v'.repeat(VALUE_MAX))
  assert.equal((await db.get(longest)).length, VALUE_MAX)
  const tooLong = longest + 'k'
  await assert.rejects(db.put(tooLong, 'v'), { code: 'LEVEL_INVALID_KEY', message: /1344/ })
  await assert.rejects(db.put('k', 'v'.repeat(VALUE_MAX + 1)), { code: 'LEVEL_INVALID_VALUE', message: /1048576/ })
  const rows = [{ type: 'put', key: 'other', value: 'v' }, { type: 'put', key: tooLong, value: 'v' }]
  await assert.rejects(db.batch(rows), { code: 'LEVEL_INVALID_KEY' })
  assert.equal(await db.has('other'), false)
  // No key is as long: there is nothing to read or delete.
  assert.equal(await db.get(tooLong), undefined)
  assert.equal(db.getSync(tooLong), undefined)
  assert.equal(await db.has(tooLong), false)
  await db.del(tooLong)
  await db.batch([{ type: 'del', key: tooLong }])
  await db.close()
})

test('bounds may be longer than any key', async () => {
  const db = await opened()
  const longest = 'k'.repeat(KEY_MAX)
  await db.batch(['a', longest, 'z'].map((key) => ({ type: 'put', key, value: '' })))
  const keys = (range) => db.keys(range).all()
  assert.deepEqual(await keys({ gte: longest + 'k' }), ['z'])
  assert.deepEqual(await keys({ gt: longest + 'k' }), ['z'])
  assert.deepEqual(await keys({ lt: longest + 'k' }), ['a', longest])
  assert.deepEqual(await keys({ lte: longest + 'k' }), ['a', longest])
  assert.deepEqual(await keys({ gt: 'z', lt: 'a' }), [])
  await db.clear({ gte: longest + 'k' })
  await db.clear({ gt: 'z', lt: 'a' })
  assert.deepEqual(await keys({}), ['a', longest])
  await db.close()
})

test('null, undefined and values of other types are refused', async () => {
  const db = await opened()
  for (const nothing of [null, undefined]) {
    await assert.rejects(db.put(nothing, 'v'), { code: 'LEVEL_INVALID_KEY' })
    await assert.rejects(db.get(nothing), { code: 'LEVEL_INVALID_KEY' })
    await assert.rejects(db.put('k', nothing), { code: 'LEVEL_INVALID_VALUE' })
    assert.throws(() => db.getSync(nothing), { code: 'LEVEL_INVALID_KEY' })
  }
  for (const location of [null, undefined, 1, '']) assert.throws(() => new EskerLevel(location), TypeError)
  await db.close()
})

test('what a caller changes after a call was not written, and what was read is the caller\'s', async () => {
  const db = await opened({ keyEncoding: 'buffer', valueEncoding: 'buffer' })
  const key = Buffer.from('key')
  const value = Buffer.from('value')
  const put = db.put(key, value)
  key.fill(0)
  value.fill(0)
  await put
  const read = await db.get(Buffer.from('key'))
  assert.equal(read.toString(), 'value')
  read.fill(1)
  assert.equal(db.getSync(Buffer.from('key')).toString(), 'value')
  await db.close()
})

test('buffers that share memory hold their own values', async () => {
  const db = await opened({ valueEncoding: 'buffer' })
  const rows = Array.from({ length: 300 }, (_, i) => ({ type: 'put', key: String(i).padStart(3, '0'), value: Buffer.alloc(i * 17, i) }))
  await db.batch(rows)
  const same = (values) => values.forEach((value, i) => assert.ok(value.equals(rows[i].value), String(i)))
  const keys = rows.map((row) => row.key)
  same(await db.getMany(keys))
  same(await Promise.all(keys.map((key) => db.get(key))))
  same(keys.map((key) => db.getSync(key)))
  same((await db.iterator().all()).map((row) => row[1]))
  same(await db.values().nextv(300).then(async (some) => [...some, ...(await db.values({ gt: keys[some.length - 1] }).all())]))
  const snapshot = db.snapshot()
  same(await Promise.all(keys.map((key) => db.get(key, { snapshot }))))
  await db.close()
})

test('writes are done in the order of the calls', async () => {
  const db = await opened()
  await Promise.all([
    db.put('a', '1'), db.put('a', '2'), db.batch([{ type: 'put', key: 'a', value: '3' }, { type: 'put', key: 'b', value: '1' }]),
    db.del('a'), db.put('a', '4'), db.clear({ gte: 'b' }), db.put('c', '1', { sync: true })
  ])
  assert.deepEqual(await db.iterator().all(), [['a', '4'], ['c', '1']])
  await db.close()
})

test('clear takes ranges, limits, directions and snapshots', async () => {
  const db = await opened()
  const fill = () => db.batch([...'abcdef'].map((key) => ({ type: 'put', key, value: key })))
  const left = async () => (await db.keys().all()).join('')
  await fill()
  await db.clear({ gt: 'a', lte: 'c' })
  assert.equal(await left(), 'adef')
  await db.clear({ limit: 2 })
  assert.equal(await left(), 'ef')
  await fill()
  await db.clear({ reverse: true, limit: 2, lt: 'f' })
  assert.equal(await left(), 'abcf')
  const snapshot = db.snapshot()
  await db.put('b2', '')
  await db.clear({ snapshot })
  assert.equal(await left(), 'b2')
  await db.clear()
  assert.equal(await left(), '')
  await db.close()
})

test('an iterator walks many rows, both ways, from where it was sent to', async () => {
  const db = await opened()
  const keys = Array.from({ length: 5000 }, (_, i) => String(i).padStart(4, '0'))
  for (let i = 0; i < 5000; i += 1000) {
    await db.batch(keys.slice(i, i + 1000).map((key) => ({ type: 'put', key, value: key + 'x'.repeat(100) })))
  }
  const walked = []
  for await (const [key, value] of db.iterator()) {
    assert.equal(value.slice(0, 4), key)
    walked.push(key)
  }
  assert.deepEqual(walked, keys)
  assert.deepEqual(await db.keys({ reverse: true }).all(), keys.slice().reverse())
  assert.deepEqual(await db.keys({ limit: 7, gte: '0100', highWaterMarkBytes: 1 }).all(), keys.slice(100, 107))
  assert.deepEqual((await db.values({ limit: 3 }).all()).map((value) => value.slice(0, 4)), keys.slice(0, 3))
  assert.deepEqual(await db.iterator({ values: false, limit: 1 }).all(), [['0000', undefined]])
  assert.deepEqual((await db.iterator({ keys: false, values: false, limit: 2000 }).all()).length, 2000)
  assert.deepEqual(await db.iterator({ keys: false, values: false, limit: 1 }).all(), [[undefined, undefined]])
  assert.deepEqual(await db.keys({ keys: false, limit: 1 }).all(), ['0000'])
  const iterator = db.keys({ reverse: true, lt: '0500' })
  assert.equal(await iterator.next(), '0499')
  assert.equal(await iterator.next(), '0498')
  iterator.seek('0250')
  assert.equal(await iterator.next(), '0250')
  iterator.seek('9')
  assert.equal(await iterator.next(), undefined)
  iterator.seek('0001')
  assert.deepEqual(await iterator.nextv(5), ['0001', '0000'])
  await iterator.close()
  await db.close()
})

test('a place that is missing, there already, LevelDB\'s or no directory is told apart', async () => {
  const location = place()
  const cause = (options, at = location) => opened(options, at).then(() => assert.fail('it opened'), (error) => {
    assert.equal(error.code, 'LEVEL_DATABASE_NOT_OPEN')
    return error.cause
  })
  assert.match((await cause({ createIfMissing: false })).message, /does not exist/)
  await opened({}, location).then((db) => db.close())
  assert.match((await cause({ errorIfExists: true })).message, /errorIfExists/)
  const leveldb = place()
  fs.mkdirSync(leveldb)
  fs.writeFileSync(path.join(leveldb, 'CURRENT'), 'MANIFEST-000001\n')
  assert.match((await cause({}, leveldb)).message, /LevelDB/)
  const file = place()
  fs.writeFileSync(file, 'text')
  assert.ok((await cause({}, file)).code)
  for (const options of [{ memoryBytes: 1 }, { memoryBytes: -1 }, { memoryBytes: 1.5 }, { durabilityMs: NaN }, { spaceAmplification: 0 }]) {
    assert.equal((await cause(options)).code, 'ESKER_INVALID', JSON.stringify(options))
  }
  assert.ok(await cause({ memoryBytes: 'much' }))
})

test('damage is LEVEL_CORRUPTION', async () => {
  const location = place()
  await opened({}, location).then(async (db) => {
    await db.put('k', 'v')
    await db.close()
  })
  for (const name of fs.readdirSync(location)) {
    const file = path.join(location, name)
    const size = fs.statSync(file).size
    const handle = fs.openSync(file, 'r+')
    fs.writeSync(handle, Buffer.alloc(Math.min(size, 1 << 16), 0x5a), 0, Math.min(size, 1 << 16), 0)
    fs.closeSync(handle)
  }
  await assert.rejects(opened({}, location), (error) => error.cause.code === 'LEVEL_CORRUPTION')
})

test('a database is opened once in a process, and again after its end', async () => {
  const db = await opened()
  await assert.rejects(opened({}, db.location), (error) => error.cause.code === 'LEVEL_LOCKED')
  await db.close()
  const again = await opened({}, db.location)
  await again.close()
  await again.open()
  await again.put('k', 'v')
  assert.equal(again.getSync('k'), 'v')
  await again.close()
})

test('many may read a database that nobody writes', async () => {
  const db = await opened()
  await db.put('k', 'v')
  await db.close()
  const readers = [await opened({ readOnly: true }, db.location), await opened({ readOnly: true }, db.location)]
  for (const reader of readers) {
    assert.equal(await reader.get('k'), 'v')
    await assert.rejects(reader.put('k', 'w'), { code: 'ESKER_READ_ONLY' })
    await assert.rejects(reader.batch([{ type: 'del', key: 'k' }]), { code: 'ESKER_READ_ONLY' })
    await reader.close()
  }
})

test('every call after close says so', async () => {
  const db = await opened()
  await db.put('k', 'v')
  const iterator = db.iterator()
  const snapshot = db.snapshot()
  const batch = db.batch()
  await db.close()
  await db.close()
  const closed = { code: 'LEVEL_DATABASE_NOT_OPEN' }
  const calls = [
    () => db.get('k'), () => db.put('k', 'v'), () => db.del('k'), () => db.has('k'), () => db.getMany(['k']),
    () => db.hasMany(['k']), () => db.batch([{ type: 'del', key: 'k' }]), () => db.clear(), () => db.sync(), () => db.stats(),
    () => db.remarks(), () => db.compact(), () => db.backup(place())
  ]
  for (const call of calls) await assert.rejects(call(), closed, String(call))
  for (const call of [() => db.getSync('k'), () => db.iterator(), () => db.snapshot(), () => db.batch()]) assert.throws(call, closed)
  await assert.rejects(iterator.next(), { code: 'LEVEL_ITERATOR_NOT_OPEN' })
  assert.throws(() => batch.put('k', 'v'), { code: 'LEVEL_BATCH_NOT_OPEN' })
  await snapshot.close()
})

test('close waits for the calls before it', async () => {
  const db = await opened()
  const puts = Array.from({ length: 500 }, (_, i) => db.put(String(i), 'v', { sync: i % 100 === 0 }))
  const others = [db.getMany(['1']), db.has('1'), db.stats(), db.sync()]
  await db.close()
  await Promise.all([...puts, ...others])
  await db.open()
  assert.equal((await db.keys().all()).length, 500)
  await db.close()
})

test('close during scans ends them', async () => {
  for (let round = 0; round < 5; round++) {
    const db = await opened()
    await db.batch(Array.from({ length: 2000 }, (_, i) => ({ type: 'put', key: String(i), value: 'v'.repeat(500) })))
    const scans = Array.from({ length: 4 }, async () => {
      let rows = 0
      // eslint-disable-next-line no-unused-vars
      for await (const row of db.iterator()) rows++
      return rows
    })
    const settled = Promise.allSettled(scans)
    await new Promise((resolve) => setTimeout(resolve, round))
    await db.close()
    for (const { status, value, reason } of await settled) {
      if (status === 'fulfilled') assert.equal(value, 2000)
      else assert.match(reason.code, /LEVEL_(ITERATOR|DATABASE)_NOT_OPEN/)
    }
  }
})

test('a snapshot keeps what it saw until its end', async () => {
  const db = await opened()
  await db.put('k', 'old')
  const snapshot = db.snapshot()
  await db.put('k', 'new')
  await db.put('l', 'new')
  assert.equal(await db.get('k', { snapshot }), 'old')
  assert.equal(db.getSync('k', { snapshot }), 'old')
  assert.equal(await db.has('l', { snapshot }), false)
  assert.deepEqual(await db.getMany(['k', 'l'], { snapshot }), ['old', undefined])
  assert.deepEqual(await db.iterator({ snapshot }).all(), [['k', 'old']])
  await snapshot.close()
  await snapshot.close()
  await assert.rejects(db.get('k', { snapshot }), { code: 'LEVEL_SNAPSHOT_NOT_OPEN' })
  assert.throws(() => db.getSync('k', { snapshot }), { code: 'LEVEL_SNAPSHOT_NOT_OPEN' })
  await db.close()
})

test('a snapshot of another database is refused', async () => {
  const [db, other] = [await opened(), await opened()]
  await db.put('k', 'v')
  const snapshot = other.snapshot()
  await assert.rejects(db.get('k', { snapshot }), { code: 'ESKER_INVALID' })
  assert.throws(() => db.iterator({ snapshot }), { code: 'ESKER_INVALID' })
  await db.close()
  await other.close()
})

test('figures, a compaction, a copy, a check, a repair and the end of a database', async () => {
  const db = await opened({ staging: true })
  await db.batch(Array.from({ length: 1000 }, (_, i) => ({ type: 'put', key: String(i), value: 'v'.repeat(1000) })))
  const stats = await db.stats()
  assert.equal(typeof stats.operations, 'object')
  assert.ok(Array.isArray(await db.remarks()))
  assert.equal((await db.compact()).active, false)
  const copy = place()
  await db.backup(copy)
  await assert.rejects(db.backup(copy), { code: 'ESKER_EXISTS' })
  await db.close()
  assert.equal((await EskerLevel.check(copy)).findings.length, 0)
  const restored = await opened({}, copy)
  assert.equal((await restored.keys().all()).length, 1000)
  await restored.close()
  const repaired = place()
  await EskerLevel.repair(copy, repaired)
  const sound = await opened({}, repaired)
  assert.equal(await sound.get('7'), 'v'.repeat(1000))
  await sound.close()
  await EskerLevel.destroy(copy)
  await assert.rejects(opened({ createIfMissing: false }, copy))
  await assert.rejects(EskerLevel.check(copy), { code: 'ESKER_NOT_FOUND' })
})

test('calls of an opening database wait', async () => {
  const db = new EskerLevel(place(), { memoryBytes: 16 << 20 })
  const results = await Promise.all([db.put('k', 'v'), db.stats(), db.iterator().all(), db.sync()])
  assert.equal(results.length, 4)
  assert.equal(await db.get('k'), 'v')
  await db.close()
})

test('reads that are done at once let timers run', async () => {
  const db = await opened()
  await db.put('k', 'v')
  let ticks = 0
  const timer = setInterval(() => ticks++, 1)
  const end = Date.now() + 300
  while (Date.now() < end) await db.get('k')
  clearInterval(timer)
  assert.ok(ticks > 10, `${ticks} ticks`)
  await db.close()
})

test('handles of the native part are checked', async () => {
  const native = require(path.join(path.dirname(require.resolve('esker-level')), 'esker.node'))
  const db = await opened()
  const options = { reverse: false, keys: true, values: true, textKeys: true, textValues: true, bytesMax: 1 }
  const handle = await native.open(place(), { createIfMissing: true, errorIfExists: false, memoryBytes: 16 << 20 })
  const wrong = [null, undefined, 1, 'text', {}, native.snapshot(handle), native.iterator(handle, {}, options)]
  const calls = [
    (h) => native.get(h, 'k'), (h) => native.getSync(h, 'k'), (h) => native.queueGet(h, 'k', true), (h) => native.runReads(h),
    (h) => native.queueWrite(h, 'k', 'v', false), (h) => native.runWrites(h), (h) => native.queueBatch(h, [], false),
    (h) => native.getMany(h, ['k'], true), (h) => native.iterator(h, {}, options), (h) => native.snapshot(h),
    (h) => native.queueClear(h, {}, false), (h) => native.stats(h), (h) => native.close(h)
  ]
  for (const call of calls) for (const h of wrong) assert.throws(() => call(h), Error, String(call))
  for (const h of [null, 1, {}, handle]) {
    assert.throws(() => native.snapshotClose(h))
    assert.throws(() => native.iteratorRead(h, 1))
    assert.throws(() => native.iteratorClose(h))
  }
  for (const key of [null, 1, {}, [], new Float64Array(2)]) assert.throws(() => native.get(handle, key))
  assert.throws(() => native.queueBatch(handle, ['k', 1], false))
  assert.throws(() => native.queueBatch(handle, 'text', false))
  const walk = native.iterator(handle, {}, options)
  await native.close(handle)
  await native.close(handle)
  const closed = { code: 'LEVEL_DATABASE_NOT_OPEN' }
  assert.throws(() => native.get(handle, 'k'), closed)
  assert.throws(() => native.iterator(handle, {}, options), closed)
  assert.equal((await native.iteratorRead(walk, 1)).code, closed.code)
  await db.close()
})
