package dev.esker;

import java.nio.ByteBuffer;
import java.util.List;

/** All KVSs of a KVDB as they were at one moment, which a snapshot and a transaction read alike. */
abstract class Reader {
    /** Keeps the KVDB open. */
    final Kvdb db;
    final Handle handle;
    private final int of;

    Reader(Kvdb db, int kind, long pointer, int of) {
        this.db = db;
        this.of = of;
        handle = new Handle(kind, pointer, db.handle);
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
        return Reads.get(this, of, handle, kvs, key);
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
        return Reads.get(this, of, handle, kvs, key);
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
        return Reads.get(this, of, handle, kvs, key, null, 0, Bytes.key(key).length, into);
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
        return Reads.get(this, of, handle, kvs, Bytes.array(key), Bytes.direct(key), Bytes.offset(key), size, into);
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
        return Reads.getMany(this, of, handle, kvs, keys);
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
        return Reads.contains(this, of, handle, kvs, key);
    }

    /**
     * Makes an iterator over all keys.
     *
     * @param kvs a KVS of the same KVDB
     * @return the iterator, which the caller closes
     * @throws EskerException if it is closed
     */
    public RowIterator iterate(Kvs kvs) {
        return Reads.iterate(this, of, handle, kvs, new Range());
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
        return Reads.iterate(this, of, handle, kvs, range);
    }
}
