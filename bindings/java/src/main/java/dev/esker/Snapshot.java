package dev.esker;

import java.nio.ByteBuffer;
import java.util.List;

/**
 * All KVSs of a KVDB as they were when the snapshot was made, used by any number of threads. While it is open, the KVDB
 * keeps the data that it may read: close it.
 */
public final class Snapshot implements AutoCloseable {
    /** Keeps the KVDB open. */
    final Kvdb db;
    private final Handle handle;

    Snapshot(Kvdb db, long pointer) {
        this.db = db;
        handle = new Handle(Handle.SNAPSHOT, pointer, db.handle);
        handle.ownedBy(this);
    }

    /**
     * Reads the value of a key.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @return the value, or null where there is none
     * @throws EskerException if it is closed, or the read fails
     */
    public byte[] get(Kvs kvs, byte[] key) {
        return Reads.get(this, Reads.OF_SNAPSHOT, handle, kvs, key);
    }

    /**
     * Reads the value of a key.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key: the remaining bytes of the buffer, whose position stays
     * @return the value, or null where there is none
     * @throws EskerException if it is closed, or the read fails
     */
    public byte[] get(Kvs kvs, ByteBuffer key) {
        return Reads.get(this, Reads.OF_SNAPSHOT, handle, kvs, key);
    }

    /**
     * Reads the value of a key into a buffer, direct or not, whose position moves behind the bytes that were read. Where
     * the value is larger than what remains of the buffer, its first bytes are read.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @param into where the value goes
     * @return the size of the value in bytes, or -1 where there is none
     * @throws EskerException if it is closed, or the read fails
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     */
    public int get(Kvs kvs, byte[] key, ByteBuffer into) {
        return Reads.get(this, Reads.OF_SNAPSHOT, handle, kvs, key, null, 0, Bytes.key(key).length, into);
    }

    /**
     * As the call with an array.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key: the remaining bytes of the buffer, whose position stays
     * @param into where the value goes
     * @return the size of the value in bytes, or -1 where there is none
     * @throws EskerException if it is closed, or the read fails
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     */
    public int get(Kvs kvs, ByteBuffer key, ByteBuffer into) {
        int size = Bytes.key(key.remaining());
        return Reads.get(this, Reads.OF_SNAPSHOT, handle, kvs, Bytes.array(key), Bytes.direct(key), Bytes.offset(key), size, into);
    }

    /**
     * Reads the values of many keys, in less time than as many calls of {@code get}.
     *
     * @param kvs a KVS of the same KVDB
     * @param keys the keys
     * @return as many values, null where there is none
     * @throws EskerException if it is closed, or a read fails
     */
    public List<byte[]> getMany(Kvs kvs, List<byte[]> keys) {
        return Reads.getMany(this, Reads.OF_SNAPSHOT, handle, kvs, keys);
    }

    /**
     * Says whether a key has a value, which is not read.
     *
     * @param kvs a KVS of the same KVDB
     * @param key the key
     * @return whether it has
     * @throws EskerException if it is closed, or the read fails
     */
    public boolean contains(Kvs kvs, byte[] key) {
        return Reads.contains(this, Reads.OF_SNAPSHOT, handle, kvs, key);
    }

    /**
     * Makes an iterator over all keys.
     *
     * @param kvs a KVS of the same KVDB
     * @return the iterator, which the caller closes
     * @throws EskerException if it is closed
     */
    public RowIterator iterate(Kvs kvs) {
        return Reads.iterate(this, Reads.OF_SNAPSHOT, handle, kvs, new Range());
    }

    /**
     * Makes an iterator over a range of keys.
     *
     * @param kvs a KVS of the same KVDB
     * @param range which keys, and in which order
     * @return the iterator, which the caller closes
     * @throws EskerException if it is closed, or the range cannot be
     */
    public RowIterator iterate(Kvs kvs, Range range) {
        return Reads.iterate(this, Reads.OF_SNAPSHOT, handle, kvs, range);
    }

    /** Lets go of the data. Does nothing when it is closed already. */
    @Override
    public void close() {
        handle.close();
    }
}
