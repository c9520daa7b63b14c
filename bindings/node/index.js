'use strict'

const { AbstractLevel, AbstractSnapshot } = require('abstract-level')
const ModuleError = require('module-error')
const { Iterator, KeyIterator, ValueIterator } = require('./iterator')
const { Lane, Shared } = require('./lane')
const native = require('./esker.node')

// Buffers that small values share have this many bytes, and a new one begins when there is no room for so many.
const POOL_BYTES = 16 * 1024
const POOLED_VALUE = 2 * 1024
// After so many reads that were done at once, one turns the loop of the program, which else might starve.
const AT_ONCE_MAX = 256

class EskerLevel extends AbstractLevel {
  #location
  #handle = null
  #reads = new Lane(2, () => {
    this.#atOnce = 0
    return native.runReads(this.#handle)
  }, settleReads)

  #writes = new Lane(1, () => native.runWrites(this.#handle), settleWrites)
  #room = null
  #atOnce = 0
  #calls = new Set()

  constructor (location, options) {
    if (typeof location !== 'string' || location === '') {
      throw new TypeError("The first argument 'location' must be a non-empty string")
    }
    super({
      encodings: { buffer: true, utf8: true, view: true },
      has: true,
      createIfMissing: true,
      errorIfExists: true,
      explicitSnapshots: true,
      getSync: true,
      signals: { iterators: true },
      additionalMethods: { sync: true, stats: true, remarks: true, compact: true, backup: true }
    }, options)
    this.#location = location
  }

  get location () {
    return this.#location
  }

  async _open (options) {
    this.#handle = thrown(await native.open(this.#location, options))
  }

  async _close () {
    // Calls that were begun before are done, and then the database ends.
    await this.#writes.idle()
    await this.#reads.idle()
    await Promise.allSettled(this.#calls)
    thrown(await native.close(this.#handle))
  }

  // Has close() wait for a call.
  async #call (promise) {
    this.#calls.add(promise)
    try {
      return thrown(await promise)
    } finally {
      this.#calls.delete(promise)
    }
  }

  // ---- reads --------------------------------------------------------------------------------------

  async _get (key, options) {
    if (this.#atOnce < AT_ONCE_MAX && options.snapshot === undefined) {
      const value = options.valueEncoding === 'utf8'
        ? native.get(this.#handle, key, undefined)
        : this.#fromPool(native.get(this.#handle, key, this.#pool()))
      if (value !== true) {
        this.#atOnce++
        return value
      }
      return this.#reads.push()
    }
    native.queueGet(this.#handle, key, options.valueEncoding === 'utf8', snapshotOf(options))
    return this.#reads.push()
  }

  async _has (key, options) {
    native.queueGet(this.#handle, key, undefined, snapshotOf(options))
    return this.#reads.push()
  }

  _getSync (key, options) {
    if (options.valueEncoding === 'utf8') {
      return native.getSync(this.#handle, key, undefined, snapshotOf(options))
    }
    return this.#fromPool(native.getSync(this.#handle, key, this.#pool(), snapshotOf(options)))
  }

  // Room for a value in a buffer that values share, as those of Buffer.from() do.
  #pool () {
    if (this.#room === null || this.#room.length < POOLED_VALUE) this.#room = Buffer.allocUnsafeSlow(POOL_BYTES)
    return this.#room
  }

  // The value that was written there: then it is a length.
  #fromPool (value) {
    if (typeof value !== 'number') return value
    const room = this.#room
    this.#room = room.subarray((value + 7) & ~7)
    return room.subarray(0, value)
  }

  async _getMany (keys, options) {
    const asText = options.valueEncoding === 'utf8'
    const values = await this.#call(native.getMany(this.#handle, keys, asText, snapshotOf(options)))
    return each(values)
  }

  async _hasMany (keys, options) {
    return each(await this.#call(native.getMany(this.#handle, keys, undefined, snapshotOf(options))))
  }

  _iterator (options) {
    return new Iterator(this, this.#handle, options, snapshotOf(options))
  }

  _keys (options) {
    return new KeyIterator(this, this.#handle, options, snapshotOf(options))
  }

  _values (options) {
    return new ValueIterator(this, this.#handle, options, snapshotOf(options))
  }

  _snapshot (options) {
    return new Snapshot(native.snapshot(this.#handle), options)
  }

  // ---- writes -------------------------------------------------------------------------------------

  async _put (key, value, options) {
    native.queueWrite(this.#handle, key, value, options.sync === true)
    return this.#writes.push()
  }

  async _del (key, options) {
    native.queueWrite(this.#handle, key, undefined, options.sync === true)
    return this.#writes.push()
  }

  async _batch (operations, options) {
    const rows = new Array(operations.length * 2)
    for (let i = 0; i < operations.length; i++) {
      rows[2 * i] = operations[i].key
      rows[2 * i + 1] = operations[i].value
    }
    native.queueBatch(this.#handle, rows, options.sync === true)
    return this.#writes.push()
  }

  async _clear (options) {
    const limit = options.limit >= 0 && options.limit < 2 ** 32 ? options.limit : undefined
    native.queueClear(this.#handle, options, options.reverse === true, limit, snapshotOf(options))
    return this.#writes.push()
  }

  // ---- the whole database -------------------------------------------------------------------------

  async #whole (name, call) {
    if (this.status === 'opening') return this.deferAsync(() => this.#whole(name, call))
    if (this.status !== 'open') {
      throw new ModuleError(`Database is not open: cannot call ${name}()`, { code: 'LEVEL_DATABASE_NOT_OPEN' })
    }
    return this.#call(call())
  }

  async sync () {
    return this.#whole('sync', () => native.sync(this.#handle))
  }

  async stats () {
    return JSON.parse(await this.#whole('stats', () => native.stats(this.#handle)))
  }

  async remarks () {
    return JSON.parse(await this.#whole('remarks', () => native.remarks(this.#handle)))
  }

  async compact (options) {
    const scrub = options?.scrub === true
    return JSON.parse(await this.#whole('compact', () => native.compact(this.#handle, scrub)))
  }

  async backup (location) {
    return JSON.parse(await this.#whole('backup', () => native.backup(this.#handle, location)))
  }

  static async check (location) {
    return JSON.parse(thrown(await native.checkAt(location)))
  }

  static async repair (location, to) {
    return JSON.parse(thrown(await native.repair(location, to)))
  }

  static async destroy (location) {
    thrown(await native.destroy(location))
  }
}

const kHandle = Symbol('handle')

class Snapshot extends AbstractSnapshot {
  constructor (handle, options) {
    super(options)
    this[kHandle] = handle
  }

  async _close () {
    native.snapshotClose(this[kHandle])
  }
}

function snapshotOf (options) {
  return options.snapshot?.[kHandle]
}

// Throws an error that a call on the thread pool resolved with.
function thrown (result) {
  if (result instanceof Error) throw result
  return result
}

// The results of reads, without the buffers that they share.
function each (results) {
  const shared = new Shared(results[results.length - 1])
  results.length--
  for (let i = 0; i < results.length; i++) {
    if (typeof results[i] === 'number') results[i] = shared.take(results[i])
    else thrown(results[i])
  }
  return results
}

function settleReads (waiting, results) {
  const shared = new Shared(results[results.length - 1])
  for (let i = 0, at = 0; at < waiting.length; i++, at += 2) {
    const value = results[i]
    if (typeof value === 'number') waiting[at](shared.take(value))
    else if (value instanceof Error) waiting[at + 1](value)
    else waiting[at](value)
  }
}

function settleWrites (waiting, errors) {
  if (errors !== undefined) {
    for (let i = 0; i + 1 < errors.length; i += 2) waiting[2 * errors[i] + 1](errors[i + 1])
  }
  // Those that were rejected stay so.
  for (let at = 0; at < waiting.length; at += 2) waiting[at]()
}

exports.EskerLevel = EskerLevel
