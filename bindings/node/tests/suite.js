'use strict'

// The suite of the package abstract-level, on Esker.

const fs = require('fs')
const os = require('os')
const path = require('path')
const test = require('tape')
const suite = require('abstract-level/test')
const { EskerLevel } = require('esker-level')

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-level-'))
let next = 0

// The suite looks at the options, so the small budget for its hundreds of databases is none of them.
class SmallLevel extends EskerLevel {
  async _open (options) {
    return super._open({ memoryBytes: 16 << 20, ...options })
  }
}

suite({
  test,
  factory (options) {
    return new SmallLevel(path.join(scratch, String(next++)), options)
  }
})

test.onFinish(() => fs.rmSync(scratch, { recursive: true }))
