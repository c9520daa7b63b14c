// Compiled by tsc, and never run.

import { EskerLevel, type IteratorOptions, type OpenOptions } from 'esker-level'

async function everything (): Promise<void> {
  const options: OpenOptions = { memoryBytes: 64 << 20, staging: true, durabilityMs: 0, createIfMissing: false }
  const db = new EskerLevel<string, { a: number }>('db', { ...options, valueEncoding: 'json' })
  await db.open({ readOnly: true })
  await db.put('k', { a: 1 }, { sync: true })
  const value: { a: number } | undefined = await db.get('k')
  const sync: { a: number } | undefined = db.getSync('k')
  const bytes: Buffer | undefined = await db.get<string, Buffer>('k', { valueEncoding: 'buffer' })
  await db.batch([{ type: 'put', key: 'k', value: { a: 2 } }, { type: 'del', key: 'l' }], { sync: true })
  await db.batch().put('k', { a: 3 }).del('l').write({ sync: true })
  const range: IteratorOptions<string, { a: number }> = { gte: 'a', limit: 1, highWaterMarkBytes: 1 }
  for await (const [key, { a }] of db.iterator(range)) console.log(key.length + a)
  const keys: string[] = await db.keys({ reverse: true }).all()
  const sub = db.sublevel<string, string>('sub', { valueEncoding: 'utf8' })
  await sub.put('k', keys[0])
  const snapshot = db.snapshot()
  await db.getMany(['k'], { snapshot })
  await snapshot.close()
  const stats: Record<string, unknown> = await db.stats()
  const location: string = db.location
  console.log(value?.a, sync?.a, bytes?.length, stats.version, location, await db.remarks())
  await db.compact({ scrub: true })
  await db.backup('copy')
  await db.close()
  console.log(await EskerLevel.check('db'), await EskerLevel.repair('db', 'new'))
  await EskerLevel.destroy('db')
  // @ts-expect-error
  await db.put('k', 'not of this type')
  // @ts-expect-error
  await db.open({ memoryBytes: 'much' })
}

void everything
