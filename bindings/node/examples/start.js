'use strict'

// A phone book: node start.js DIRECTORY. It runs as often as you like.

const { EskerLevel } = require('esker-level')

async function main (location) {
  const db = new EskerLevel(location, { valueEncoding: 'json', memoryBytes: 64 << 20 })
  const byName = db.sublevel('by-name')

  // All or nothing, across sublevels.
  await db.batch([
    { type: 'put', key: 'person-42', value: { name: 'Ada', born: 1815 } },
    { type: 'put', key: 'person-43', value: { name: 'Grace', born: 1906 } },
    { type: 'put', key: 'Ada', value: 'person-42', sublevel: byName }
  ], { sync: true })

  const key = await byName.get('Ada')
  console.log(`${key} is ${(await db.get(key)).name}`)
  for await (const [id, { name, born }] of db.iterator({ gte: 'person-', lt: 'person.' })) {
    console.log(`${id}: ${name}, born in ${born}`)
  }
  await db.close()
}

main(process.argv[2] ?? 'people.db')
