import {
  AbstractBatchOperation,
  AbstractBatchOptions,
  AbstractChainedBatch,
  AbstractChainedBatchWriteOptions,
  AbstractClearOptions,
  AbstractDatabaseOptions,
  AbstractDelOptions,
  AbstractIterator,
  AbstractIteratorOptions,
  AbstractKeyIterator,
  AbstractKeyIteratorOptions,
  AbstractLevel,
  AbstractOpenOptions,
  AbstractPutOptions,
  AbstractValueIterator,
  AbstractValueIteratorOptions
} from 'abstract-level'

/** An `abstract-level` database on Esker: an ordered map of keys to values in one directory. */
export class EskerLevel<KDefault = string, VDefault = string>
  extends AbstractLevel<string | Buffer | Uint8Array, KDefault, VDefault> {
  /**
   * A database in the directory `location`. It opens by itself, or by `open()`.
   *
   * @param options Those of `open()`, and the encodings.
   */
  constructor (location: string, options?: DatabaseOptions<KDefault, VDefault> | undefined)

  /** The directory. */
  get location (): string

  open (): Promise<void>
  open (options: OpenOptions): Promise<void>

  /** Keys have up to 1,344 bytes (`LEVEL_INVALID_KEY`), values up to 1 MiB (`LEVEL_INVALID_VALUE`). */
  put (key: KDefault, value: VDefault): Promise<void>
  put<K = KDefault, V = VDefault> (key: K, value: V, options: PutOptions<K, V>): Promise<void>

  del (key: KDefault): Promise<void>
  del<K = KDefault> (key: K, options: DelOptions<K>): Promise<void>

  /** All operations or none, now and after a crash. */
  batch (operations: Array<BatchOperation<typeof this, KDefault, VDefault>>): Promise<void>
  batch<K = KDefault, V = VDefault> (operations: Array<BatchOperation<typeof this, K, V>>, options: BatchOptions<K, V>): Promise<void>
  batch (): ChainedBatch<typeof this, KDefault, VDefault>

  iterator (): Iterator<typeof this, KDefault, VDefault>
  iterator<K = KDefault, V = VDefault> (options: IteratorOptions<K, V>): Iterator<typeof this, K, V>

  keys (): KeyIterator<typeof this, KDefault>
  keys<K = KDefault> (options: KeyIteratorOptions<K>): KeyIterator<typeof this, K>

  values (): ValueIterator<typeof this, KDefault, VDefault>
  values<K = KDefault, V = VDefault> (options: ValueIteratorOptions<K, V>): ValueIterator<typeof this, K, V>

  /** Makes everything written so far durable. */
  sync (): Promise<void>

  /** The figures of the engine now. */
  stats (): Promise<Record<string, unknown>>

  /** Warnings for the user: how devices were opened, damage, readers that keep much space. */
  remarks (): Promise<string[]>

  /** Merges and moves all data, while the database is in use. */
  compact (options?: CompactOptions | undefined): Promise<Record<string, unknown>>

  /** Copies the database to another directory, while it is in use. */
  backup (location: string): Promise<Record<string, unknown>>

  /** Verifies the database in a directory, which nobody has open to write. Damage is in the report's `findings`. */
  static check (location: string): Promise<Record<string, unknown>>

  /** Writes all sound data of a damaged database to a new one in the directory `to`. */
  static repair (location: string, to: string): Promise<Record<string, unknown>>

  /** Removes a database with all it holds. */
  static destroy (location: string): Promise<void>
}

/** Options of the constructor. */
export interface DatabaseOptions<K, V> extends AbstractDatabaseOptions<K, V>, Omit<OpenOptions, 'passive'> {}

/** Options of `open()`. */
export interface OpenOptions extends AbstractOpenOptions {
  /**
   * The memory of the engine for everything, in bytes: at least 16 MiB.
   *
   * @defaultValue A quarter of what the process may have, 1 GiB at most.
   */
  memoryBytes?: number | undefined

  /**
   * An acknowledged write survives a power failure after so many milliseconds; 0: when its promise resolves.
   *
   * @defaultValue `100`
   */
  durabilityMs?: number | undefined

  /**
   * At most so many bytes of acknowledged writes are not durable yet.
   *
   * @defaultValue 8 MiB
   */
  durabilityBytes?: number | undefined

  /**
   * Maintenance lets the media hold at most so many bytes for each live byte: at least 1.02.
   *
   * @defaultValue `1.25`
   */
  spaceAmplification?: number | undefined

  /**
   * Opens it to read. Several processes may do so at once.
   *
   * @defaultValue `false`
   */
  readOnly?: boolean | undefined

  /** The place of a new database's staging class: a block device, a directory, a new file, or `true` for a file in the directory. */
  staging?: boolean | string | undefined

  /** The place of a new database's capacity class, if it is not a file in the directory. */
  capacity?: string | undefined
}

/** Options of all writes. */
export interface WriteOptions {
  /**
   * The write survives a power failure when its promise resolves. Writes that wait together share a flush.
   *
   * @defaultValue `false`
   */
  sync?: boolean | undefined
}

/** Options of all iterators. */
export interface AdditionalIteratorOptions {
  /**
   * So many bytes of rows are read ahead, and one row more.
   *
   * @defaultValue 64 KiB
   */
  highWaterMarkBytes?: number | undefined
}

/** Options of `compact()`. */
export interface CompactOptions {
  /**
   * What was deleted is erased from the media, too.
   *
   * @defaultValue `false`
   */
  scrub?: boolean | undefined
}

export interface PutOptions<K, V> extends AbstractPutOptions<K, V>, WriteOptions {}
export interface DelOptions<K> extends AbstractDelOptions<K>, WriteOptions {}
export interface BatchOptions<K, V> extends AbstractBatchOptions<K, V>, WriteOptions {}
export interface ChainedBatchWriteOptions extends AbstractChainedBatchWriteOptions, WriteOptions {}
export type ClearOptions<K> = AbstractClearOptions<K>

/** A batch that operations are added to one by one. */
export class ChainedBatch<TDatabase, KDefault, VDefault> extends AbstractChainedBatch<TDatabase, KDefault, VDefault> {
  write (): Promise<void>
  write (options: ChainedBatchWriteOptions): Promise<void>
}

export type BatchOperation<TDatabase, K, V> = AbstractBatchOperation<TDatabase, K, V>
export type Iterator<TDatabase, K, V> = AbstractIterator<TDatabase, K, V>
export type KeyIterator<TDatabase, K> = AbstractKeyIterator<TDatabase, K>
export type ValueIterator<TDatabase, K, V> = AbstractValueIterator<TDatabase, K, V>
export type IteratorOptions<K, V> = AbstractIteratorOptions<K, V> & AdditionalIteratorOptions
export type KeyIteratorOptions<K> = AbstractKeyIteratorOptions<K> & AdditionalIteratorOptions
export type ValueIteratorOptions<K, V> = AbstractValueIteratorOptions<K, V> & AdditionalIteratorOptions
