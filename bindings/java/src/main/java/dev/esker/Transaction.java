package dev.esker;

import java.nio.ByteBuffer;

/**
 * A transaction with snapshot isolation, for one thread at a time; a second one is told {@link EskerException.Kind#BUSY}.
 * Its reads see the KVDB as it was when it began, with its own writes. Closing it without a commit forgets them.
 */
public final class Transaction extends Reader implements AutoCloseable {
    Transaction(Kvdb db, long pointer) {
        super(db, Handle.TRANSACTION, pointer, Reads.OF_TRANSACTION);
    }

    /**
     * Reads the value of a key. Committing fails when someone else has written the key since the beginning.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @return the value, or null where there is none
     * @throws EskerException if it is closed, or the read fails
     */
    public byte[] getForUpdate(Kvs kvs, byte[] key) {
        return Reads.get(this, Reads.FOR_UPDATE, handle, kvs, key);
    }

    /**
     * Says whether someone else has written a key since the transaction began: then committing a write of it would fail.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @return whether someone has
     * @throws EskerException if it is closed
     */
    public boolean isChanged(Kvs kvs, byte[] key) {
        return Reads.contains(this, Reads.FOR_UPDATE, handle, kvs, key);
    }

    /**
     * Maps a key to a value.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(Kvs kvs, byte[] key, byte[] value) {
        Writes.put(this, handle, kvs, key, value, 0);
    }

    /**
     * Maps a key to a value: the remaining bytes of buffers, direct or not, whose positions stay.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(Kvs kvs, ByteBuffer key, ByteBuffer value) {
        Writes.put(this, handle, kvs, key, value, 0);
    }

    /**
     * Removes a key, whether it is there or not.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @throws EskerException if it is closed, or the write fails
     */
    public void delete(Kvs kvs, byte[] key) {
        Writes.delete(this, 0, handle, kvs, Bytes.key(key), null);
    }

    /**
     * Removes all keys that begin with a prefix, by one record.
     *
     * @param kvs a KVS of the same KVDB
     * @param prefix at least one byte
     * @throws EskerException if it is closed, or the write fails
     */
    public void deletePrefix(Kvs kvs, byte[] prefix) {
        Writes.delete(this, 1, handle, kvs, Bytes.key(prefix), null);
    }

    /**
     * Removes all keys of a range, by one record.
     *
     * @param kvs a KVS of the same KVDB
     * @param from the least key that is removed, or null for no bound
     * @param to the key before which the range ends, or null for no bound
     * @throws EskerException if it is closed, or the write fails
     */
    public void deleteRange(Kvs kvs, byte[] from, byte[] to) {
        Writes.deleteRange(this, handle, kvs, from, to);
    }

    /**
     * Commits: all of the writes or none. The transaction has ended in any case.
     *
     * @throws EskerException if someone else wrote one of its keys ({@link EskerException.Kind#TRANSACTION_CONFLICT}), it
     *     was open for too long, it is closed, or the write fails
     */
    public void commit() {
        commit(false);
    }

    /**
     * Commits: all of the writes or none. The transaction has ended in any case.
     *
     * @param durable whether the writes are durable when the call returns
     * @throws EskerException as the call without an argument
     */
    public void commit(boolean durable) {
        Kvdb.use(this, handle, pointer -> {
            Native.commit(pointer, durable ? 1 : 0);
            return null;
        });
        handle.close();
    }

    /** Forgets what was not committed. Does nothing when the transaction has ended. */
    @Override
    public void close() {
        handle.close();
    }
}
