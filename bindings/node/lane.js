'use strict'

// Calls that go to the thread pool together: one piece of work for all that were made meanwhile.
class Lane {
  #run
  #settle
  #most
  #waiting = []
  #running = 0
  #scheduled = false
  #idle = null

  // At most so many pieces of work are under way.
  constructor (most, run, settle) {
    this.#most = most
    this.#run = run
    this.#settle = settle
  }

  // The promise of a call that was just added to the native side.
  push () {
    return new Promise((resolve, reject) => {
      this.#waiting.push(resolve, reject)
      this.#schedule()
    })
  }

  // Resolves when nothing waits and nothing is under way.
  idle () {
    if (this.#running === 0 && this.#waiting.length === 0) return undefined
    return new Promise((resolve) => { this.#idle = resolve })
  }

  #schedule () {
    if (!this.#scheduled && this.#running < this.#most) {
      this.#scheduled = true
      // Calls of the program in this turn of its loop go along.
      process.nextTick(() => this.#start())
    }
  }

  #start () {
    const waiting = this.#waiting
    this.#scheduled = false
    this.#waiting = []
    this.#running++
    this.#run().then((results) => this.#end(waiting, results), (error) => this.#end(waiting, error))
  }

  #end (waiting, results) {
    this.#running--
    if (results instanceof Error) {
      for (let i = 1; i < waiting.length; i += 2) waiting[i](results)
    } else {
      this.#settle(waiting, results)
    }
    if (this.#waiting.length !== 0) {
      this.#schedule()
    } else if (this.#running === 0) {
      this.#idle?.()
    }
  }
}

// Buffers that small values share, one behind the other.
class Shared {
  #buffers
  #next = 0
  #buffer = null
  #offset = 0

  constructor (buffers) {
    this.#buffers = buffers
  }

  // The next value, of this length.
  take (length) {
    if (length === 0) return Buffer.alloc(0)
    if (this.#buffer === null || this.#offset === this.#buffer.length) {
      this.#buffer = this.#buffers[this.#next++]
      this.#offset = 0
    }
    const start = this.#offset
    this.#offset += length
    return this.#buffer.subarray(start, this.#offset)
  }
}

exports.Lane = Lane
exports.Shared = Shared
