'use strict'

// The suite of the package abstract-level, on Esker.

const fs = require('fs')
const os = require('os')
const path = require('path')
const test = require('tape')
const suite = require('abstract-level/test')
const { EskerLevel } = require('..')

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-level-'))
let next = 0

suite({
  test,
  factory (options) {
    return new EskerLevel(path.join(scratch, String(next++)), { memoryBytes: 16 << 20, ...options })
  }
})

test.onFinish(() => fs.rmSync(scratch, { recursive: true }))
