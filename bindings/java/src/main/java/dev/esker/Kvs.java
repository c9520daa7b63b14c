package dev.esker;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;

/**
 * An ordered map of keys to values in a KVDB, used by any number of threads. It needs no closing: it ends with its KVDB.
 * When the KVDB is closed or the KVS dropped, its calls throw {@link EskerException.Kind#CLOSED}.
 */
public final class Kvs {
    /** The longest key, in bytes. */
    public static final int KEY_MAX = 1344;
    /** The longest value, in bytes. */
    public static final int VALUE_MAX = 1 << 20;

    final Kvdb db;
    final Handle handle;
    private final String name;

    Kvs(Kvdb db, String name, long pointer) {
        this.db = db;
        this.name = name;
        handle = new Handle(Handle.KVS, pointer, db.handle);
        handle.ownedBy(this);
    }

    /**
     * The name of the KVS.
     *
     * @return its name
     */
    public String name() {
        return name;
    }

    /**
     * Reads the value of a key.
     *
     * @param key the key
     * @return the value, or null where there is none
     * @throws EskerException if it is closed, or the read fails
     */
    public byte[] get(byte[] key) {
        return Reads.get(this, Reads.OF_KVS, null, this, key);
    }

    /**
     * Reads the value of a key.
     *
     * @param key the key: the remaining bytes of the buffer, whose position stays
     * @return the value, or null where there is none
     * @throws EskerException if it is closed, or the read fails
     */
    public byte[] get(ByteBuffer key) {
        return Reads.get(this, Reads.OF_KVS, null, this, key);
    }

    /**
     * Reads the value of a key into a buffer, direct or not, whose position moves behind the bytes that were read. Where
     * the value is larger than what remains of the buffer, its first bytes are read.
     *
     * @param key the key
     * @param into where the value goes
     * @return the size of the value in bytes, or -1 where there is none
     * @throws EskerException if it is closed, or the read fails
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     */
    public int get(byte[] key, ByteBuffer into) {
        return Reads.get(this, Reads.OF_KVS, null, this, key, null, 0, Bytes.key(key).length, into);
    }

    /**
     * As the call with an array.
     *
     * @param key the key: the remaining bytes of the buffer, whose position stays
     * @param into where the value goes
     * @return the size of the value in bytes, or -1 where there is none
     * @throws EskerException if it is closed, or the read fails
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     */
    public int get(ByteBuffer key, ByteBuffer into) {
        int size = Bytes.key(key.remaining());
        return Reads.get(this, Reads.OF_KVS, null, this, Bytes.array(key), Bytes.direct(key), Bytes.offset(key), size, into);
    }

    /**
     * Reads the values of many keys, in less time than as many calls of {@code get}.
     *
     * @param keys the keys
     * @return as many values, null where there is none
     * @throws EskerException if it is closed, or a read fails
     */
    public List<byte[]> getMany(List<byte[]> keys) {
        return Reads.getMany(this, Reads.OF_KVS, null, this, keys);
    }

    /**
     * Says whether a key has a value, which is not read.
     *
     * @param key the key
     * @return whether it has
     * @throws EskerException if it is closed, or the read fails
     */
    public boolean contains(byte[] key) {
        return Reads.contains(this, Reads.OF_KVS, null, this, key);
    }

    /**
     * Makes an iterator over all keys.
     *
     * @return the iterator, which the caller closes
     * @throws EskerException if it is closed
     */
    public RowIterator iterate() {
        return Reads.iterate(this, Reads.OF_KVS, null, this, new Range());
    }

    /**
     * Makes an iterator over a range of keys.
     *
     * @param range which keys, and in which order
     * @return the iterator, which the caller closes
     * @throws EskerException if it is closed, or the range cannot be
     */
    public RowIterator iterate(Range range) {
        return Reads.iterate(this, Reads.OF_KVS, null, this, range);
    }

    /**
     * Maps a key to a value. The options of the KVDB say when it is durable.
     *
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(byte[] key, byte[] value) {
        Writes.put(this, null, this, key, value, 0);
    }

    /**
     * Maps a key to a value: the remaining bytes of buffers, direct or not, whose positions stay.
     *
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(ByteBuffer key, ByteBuffer value) {
        Writes.put(this, null, this, key, value, 0);
    }

    /**
     * Maps a key to a value.
     *
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @param durable whether the write is durable when the call returns
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(byte[] key, byte[] value, boolean durable) {
        Writes.put(this, null, this, key, value, durable ? 1 : 0);
    }

    /**
     * As the call with arrays.
     *
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @param durable whether the write is durable when the call returns
     * @throws EskerException if it is closed, or the write fails
     */
    public void put(ByteBuffer key, ByteBuffer value, boolean durable) {
        Writes.put(this, null, this, key, value, durable ? 1 : 0);
    }
    /**
     * Removes a key, whether it is there or not.
     *
     * @param key the key
     * @throws EskerException if it is closed, or the write fails
     */
    public void delete(byte[] key) {
        Writes.delete(this, 0, null, this, Bytes.key(key), null);
    }

    /**
     * Removes all keys that begin with a prefix, by one record.
     *
     * @param prefix at least one byte
     * @throws EskerException if it is closed, or the write fails
     */
    public void deletePrefix(byte[] prefix) {
        Writes.delete(this, 1, null, this, Bytes.key(prefix), null);
    }

    /**
     * Removes all keys of a range, by one record.
     *
     * @param from the least key that is removed, or null for no bound
     * @param to the key before which the range ends, or null for no bound
     * @throws EskerException if it is closed, or the write fails
     */
    public void deleteRange(byte[] from, byte[] to) {
        Writes.deleteRange(this, null, this, from, to);
    }

    /**
     * Maps a key to a new value if it has the old one.
     *
     * @param key the key
     * @param oldValue the value that it must have, or null for none
     * @param newValue the value that it gets, or null to delete it
     * @return whether it had the old value, and has the new one
     * @throws EskerException if it is closed, or the write fails
     */
    public boolean compareAndSet(byte[] key, byte[] oldValue, byte[] newValue) {
        Bytes.key(key);
        if (oldValue != null) {
            Bytes.value(oldValue);
        }
        if (newValue != null) {
            Bytes.value(newValue);
        }
        return use(pointer -> Native.compareAndSet(pointer, key, oldValue, newValue));
    }

    /**
     * The policy, compression and time to live of the KVS.
     *
     * @return JSON
     * @throws EskerException if it is closed
     */
    public String options() {
        return Bytes.string(use(pointer -> Native.text(2, pointer)));
    }

    /**
     * Changes where the data of the KVS goes, durably.
     *
     * @param policy as {@link KvsSettings#policy}
     * @throws EskerException if it is closed, or there is no such policy
     */
    public void setPolicy(String policy) {
        setText(true, policy);
    }

    /**
     * Changes how values that age from now on are compressed, durably.
     *
     * @param compression as {@link KvsSettings#compression}
     * @throws EskerException if it is closed, or there is no such compression
     */
    public void setCompression(String compression) {
        setText(false, compression);
    }

    private void setText(boolean policy, String value) {
        byte[] text = Bytes.text(Objects.requireNonNull(value, "the setting is null"));
        use(pointer -> {
            Native.setText(pointer, policy, text);
            return null;
        });
    }

    /**
     * Changes how long values live that are put from now on, durably.
     *
     * @param ms milliseconds; 0 for ever
     * @throws EskerException if it is closed
     */
    public void setTtlMs(long ms) {
        if (ms < 0) {
            throw EskerException.invalid("a time to live of " + ms + " ms is below zero");
        }
        use(pointer -> {
            Native.setTtl(pointer, ms);
            return null;
        });
    }

    /**
     * The bytes that the caller has set to stay with the KVS.
     *
     * @return the bytes; none where nobody has set any
     * @throws EskerException if it is closed
     */
    public byte[] metadata() {
        return use(pointer -> Native.text(3, pointer));
    }

    /**
     * Sets bytes that stay with the KVS, durably.
     *
     * @param metadata at most 4,096 bytes
     * @throws EskerException if it is closed, or these are too many
     */
    public void setMetadata(byte[] metadata) {
        Objects.requireNonNull(metadata, "the metadata is null");
        use(pointer -> {
            Native.setMetadata(pointer, metadata);
            return null;
        });
    }

    private <T> T use(Kvdb.Call<T> call) {
        return Kvdb.use(this, handle, call);
    }
}
