'use strict'

const { AbstractIterator, AbstractKeyIterator, AbstractValueIterator } = require('abstract-level')
const ModuleError = require('module-error')
const { Shared } = require('./lane')
const native = require('./esker.node')

const empty = []
// Rows that the first call of next() reads, and the most that one reads.
const ROWS_FIRST = 1
const ROWS_MAX = 1000
// Bytes after which a call reads no more rows, unless the caller says otherwise.
const BYTES_MAX = 64 * 1024

// An iterator of one of the three kinds.
const walking = (Base) => class extends Base {
  #handle
  #keys
  #values
  #ahead = empty
  #position = 0
  #rows = ROWS_FIRST
  #ended = false
  #target
  #signal

  constructor (db, handle, options, snapshot) {
    super(db, options)
    const isRows = Base === AbstractIterator
    // Rows without both are counted by their keys, which abstract-level leaves out.
    this.#keys = isRows ? options.keys || !options.values : Base === AbstractKeyIterator
    this.#values = isRows ? options.values : Base === AbstractValueIterator
    this.#signal = options.signal
    this.#handle = native.iterator(handle, options, {
      reverse: options.reverse === true,
      keys: this.#keys,
      values: this.#values,
      textKeys: options.keyEncoding === 'utf8',
      textValues: options.valueEncoding === 'utf8',
      bytesMax: options.highWaterMarkBytes ?? BYTES_MAX
    }, snapshot)
  }

  _seek (target) {
    this.#target = target
    this.#ahead = empty
    this.#position = 0
    this.#rows = ROWS_FIRST
    this.#ended = false
  }

  async #read (most) {
    const target = this.#target
    this.#target = undefined
    const flat = await native.iteratorRead(this.#handle, most, target)
    if (this.#signal?.aborted) {
      const error = new ModuleError('Operation has been aborted', { code: 'LEVEL_ABORTED' })
      error.name = 'AbortError'
      throw error
    }
    if (flat instanceof Error) throw flat
    this.#ended = flat[0]
    return this.#items(flat)
  }

  // The items that the native side gave one behind the other, between whether it has ended and the shared buffers.
  #items (flat) {
    const shared = new Shared(flat.pop())
    for (let i = 1; i < flat.length; i++) {
      if (typeof flat[i] === 'number') flat[i] = shared.take(flat[i])
    }
    if (Base !== AbstractIterator) {
      flat.shift()
      return flat
    }
    const columns = (this.#keys ? 1 : 0) + (this.#values ? 1 : 0)
    const rows = new Array((flat.length - 1) / columns)
    for (let i = 0, at = 1; i < rows.length; i++) {
      const key = this.#keys ? flat[at++] : undefined
      rows[i] = [key, this.#values ? flat[at++] : undefined]
    }
    return rows
  }

  async _next () {
    if (this.#position < this.#ahead.length) return this.#ahead[this.#position++]
    if (this.#ended) return undefined
    this.#ahead = await this.#read(this.#rows)
    this.#rows = Math.min(this.#rows * 16, ROWS_MAX)
    this.#position = 0
    return this.#ahead[this.#position++]
  }

  async _nextv (size) {
    if (this.#position < this.#ahead.length) {
      const rows = this.#ahead.slice(this.#position, this.#position + size)
      this.#position += rows.length
      return rows
    }
    return this.#ended ? [] : this.#read(size)
  }

  async _close () {
    this.#ahead = empty
    // There is none where the snapshot was closed before, or is of another database.
    if (this.#handle) native.iteratorClose(this.#handle)
  }
}

exports.Iterator = walking(AbstractIterator)
exports.KeyIterator = walking(AbstractKeyIterator)
exports.ValueIterator = walking(AbstractValueIterator)
