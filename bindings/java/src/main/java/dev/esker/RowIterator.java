package dev.esker;

import java.lang.ref.Reference;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * A walk over a KVS as it was when the iterator was made, for one thread at a time. It reads rows ahead, some hundred at
 * once. While it is open, the KVDB keeps the data that it may read: close it.
 */
public final class RowIterator implements Iterator<Row>, AutoCloseable {
    private static final int FEW = 32;
    private static final int MANY = 512;
    private static final int PAGE = 128 << 10;

    /** Keeps open what is read. */
    private final Object reader;
    private final Handle handle;
    private final boolean reverse;
    private long left;
    private int rows = FEW;
    private byte[] page;
    private int at;
    private boolean ended;

    RowIterator(Object reader, Kvs kvs, int of, long pointer, long kvsPointer, Range range) {
        this.reader = reader;
        reverse = range.reverse;
        left = range.limit;
        long expected = range.limit == Long.MAX_VALUE ? 0 : range.limit;
        handle = new Handle(Handle.ROWS, Native.iterate(of, pointer, kvsPointer, range.lowerKind, range.lower,
                range.upperKind, range.upper, range.prefix, range.keysOnly, range.reverse, expected), kvs.db.handle);
        handle.ownedBy(this);
    }

    /**
     * Whether there is another row.
     *
     * @throws EskerException if the iterator or its KVDB is closed ({@link EskerException.Kind#CLOSED}), or a read fails
     */
    @Override
    public boolean hasNext() {
        handle.checkOpen();
        if (left <= 0) {
            return false;
        }
        return page != null && at < page.length || !ended && fill();
    }

    /**
     * The next row; of a reversed range, the one before.
     *
     * @throws NoSuchElementException if there is none
     * @throws EskerException as {@link #hasNext}
     */
    @Override
    public Row next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the iterator is at its end");
        }
        byte[] from = page;
        int start = at + 2 * Bytes.NUMBER;
        int keySize = (int) Bytes.INT.get(from, at);
        int valueSize = (int) Bytes.INT.get(from, at + Bytes.NUMBER);
        at = start + keySize + valueSize;
        left--;
        return new Row(from, start, keySize, valueSize);
    }

    /**
     * Goes to the point just before a key, whether it is there or not. The next row is that key or the one behind it; of
     * a reversed range, the one before it. The rows left of a limit stay as many.
     *
     * @param key the key
     * @throws EskerException as {@link #hasNext}
     */
    public void seek(byte[] key) {
        Bytes.key(key);
        try {
            synchronized (this) {
                long pointer = handle.enter();
                try {
                    Native.seek(pointer, key);
                } finally {
                    handle.exit();
                }
                page = null;
                ended = false;
                rows = FEW;
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private synchronized boolean fill() {
        try {
            long pointer = handle.enter();
            try {
                page = Native.rows(pointer, reverse, (int) Math.min(left <= MANY ? MANY : rows, left), PAGE);
            } finally {
                handle.exit();
            }
        } finally {
            Reference.reachabilityFence(this);
        }
        // A short walk reads little ahead, a long one crosses the border seldom.
        rows = Math.min(rows * 4, MANY);
        at = 0;
        ended = page == null;
        return !ended;
    }

    /** Lets go of the data. Does nothing when it is closed already. */
    @Override
    public void close() {
        handle.close();
        Reference.reachabilityFence(reader);
    }
}
