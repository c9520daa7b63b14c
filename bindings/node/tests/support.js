'use strict'

const { spawn, spawnSync } = require('child_process')
const fs = require('fs')
const os = require('os')
const path = require('path')
const { after } = require('node:test')
const { EskerLevel } = require('esker-level')

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'esker-level-'))
after(() => fs.rmSync(scratch, { recursive: true, force: true }))
let next = 0

// A place where nothing is.
function place () {
  return path.join(scratch, String(next++))
}

// An open database with a small budget.
async function opened (options, location = place()) {
  const db = new EskerLevel(location, { memoryBytes: 16 << 20, ...options })
  await db.open()
  return db
}

// A program that has `EskerLevel`, and its argument as `location`.
function program (source) {
  const head = `const { EskerLevel } = require(${JSON.stringify(require.resolve('esker-level'))})
    const location = process.argv[1], small = { memoryBytes: 16 << 20 };\n`
  return head + source
}

// Runs a program in a process of its own to its end.
function run (source, location, flags = []) {
  return spawnSync(process.execPath, [...flags, '-e', program(source), '--', location], { encoding: 'utf8', timeout: 60000 })
}

// Starts a program; `said` gives its next line.
function start (source, location) {
  const child = spawn(process.execPath, ['-e', program(source), '--', location], { stdio: ['ignore', 'pipe', 'inherit'] })
  child.ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve({ code, signal })))
  child.said = () => new Promise((resolve) => child.stdout.once('data', (data) => resolve(String(data).trim())))
  return child
}

module.exports = { opened, place, run, start, program }
