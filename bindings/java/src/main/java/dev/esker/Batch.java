package dev.esker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/**
 * Writes that happen all or not at all, across the KVSs of a KVDB, for one thread at a time. Of several writes to one key,
 * the last one counts. A batch is memory of Java's: it needs no closing, and keeps its writes when it is written.
 */
public final class Batch {
    private static final int PUT = 0, DELETE = 1, PREFIX = 2, RANGE = 3;
    private static final int HEAD = 4 * Bytes.NUMBER;

    private final List<Kvs> kvss = new ArrayList<>();
    private final Map<Kvs, Integer> numbers = new IdentityHashMap<>();
    private byte[] packed = new byte[1024];
    private int size;
    private int count;

    /** An empty batch. */
    public Batch() {}

    /**
     * Adds a put.
     *
     * @param kvs a KVS
     * @param key the key, of at most 1,344 bytes
     * @param value the value, of at most 1 MiB
     * @return this batch
     * @throws EskerException if the key or the value is too large
     */
    public Batch put(Kvs kvs, byte[] key, byte[] value) {
        return add(PUT, kvs, Bytes.key(key), Bytes.value(value));
    }

    /**
     * Adds a delete.
     *
     * @param kvs a KVS
     * @param key the key
     * @return this batch
     * @throws EskerException if the key is too large
     */
    public Batch delete(Kvs kvs, byte[] key) {
        return add(DELETE, kvs, Bytes.key(key), null);
    }

    /**
     * Adds a delete of all keys that begin with a prefix: those of earlier writes of the batch, too.
     *
     * @param kvs a KVS
     * @param prefix at least one byte
     * @return this batch
     * @throws EskerException if the prefix is too large
     */
    public Batch deletePrefix(Kvs kvs, byte[] prefix) {
        return add(PREFIX, kvs, Bytes.key(prefix), null);
    }

    /**
     * Adds a delete of all keys of a range: those of earlier writes of the batch, too.
     *
     * @param kvs a KVS
     * @param from the least key that is removed, or null for no bound
     * @param to the key before which the range ends, or null for no bound
     * @return this batch
     * @throws EskerException if a bound is too large
     */
    public Batch deleteRange(Kvs kvs, byte[] from, byte[] to) {
        return add(RANGE, kvs, from == null ? null : Bytes.key(from), to == null ? null : Bytes.key(to));
    }

    private Batch add(int what, Kvs kvs, byte[] one, byte[] other) {
        kvs.handle.checkOpen();
        int oneSize = one == null ? 0 : one.length, otherSize = other == null ? 0 : other.length;
        long needed = (long) size + HEAD + oneSize + otherSize;
        if (needed > packed.length) {
            if (needed > Integer.MAX_VALUE - 16) {
                throw EskerException.invalid("the batch has 2 GiB: write it, and clear it");
            }
            packed = Arrays.copyOf(packed, (int) Math.min(Math.max(needed, packed.length * 2L), Integer.MAX_VALUE - 16));
        }
        Integer number = numbers.get(kvs);
        if (number == null) {
            number = kvss.size();
            kvss.add(kvs);
            numbers.put(kvs, number);
        }
        Bytes.INT.set(packed, size, what);
        Bytes.INT.set(packed, size + Bytes.NUMBER, (int) number);
        Bytes.INT.set(packed, size + 2 * Bytes.NUMBER, one == null ? -1 : oneSize);
        Bytes.INT.set(packed, size + 3 * Bytes.NUMBER, other == null ? -1 : otherSize);
        size += HEAD;
        if (one != null) {
            System.arraycopy(one, 0, packed, size, oneSize);
            size += oneSize;
        }
        if (other != null) {
            System.arraycopy(other, 0, packed, size, otherSize);
            size += otherSize;
        }
        count++;
        return this;
    }

    /**
     * How many writes the batch holds.
     *
     * @return their count
     */
    public int size() {
        return count;
    }

    /** Removes all writes from the batch. */
    public void clear() {
        kvss.clear();
        numbers.clear();
        size = 0;
        count = 0;
    }

    void write(long db, boolean durable) {
        Kvs[] all = kvss.toArray(new Kvs[0]);
        byte[] from = packed;
        long[] pointers = new long[all.length];
        int entered = 0;
        try {
            for (; entered < all.length; entered++) {
                pointers[entered] = all[entered].handle.enter();
            }
            Native.write(db, pointers, from, Math.min(size, from.length), durable ? 1 : 0);
        } finally {
            while (entered > 0) {
                all[--entered].handle.exit();
            }
            java.lang.ref.Reference.reachabilityFence(all);
        }
    }
}
