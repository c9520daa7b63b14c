package dev.esker;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/**
 * Reads of a KVS, or of a KVS in a snapshot or a transaction, which is the reader then. {@code owner} has the handle that is
 * read, and stays while it is.
 */
final class Reads {
    static final int OF_KVS = 0, OF_SNAPSHOT = 1, OF_TRANSACTION = 2, FOR_UPDATE = 3;
    /** Keys of one call: their largest values fit into an array. */
    private static final int MANY = 512;

    private Reads() {}

    /** A call with two live handles: that of the reader, 0 where there is none, and that of the KVS. */
    interface Call<T> {
        T with(long reader, long kvs);
    }

    static <T> T call(Object owner, Handle reader, Kvs kvs, Call<T> call) {
        long pointer = reader == null ? 0 : reader.enter();
        try {
            long kvsPointer = kvs.handle.enter();
            try {
                return call.with(pointer, kvsPointer);
            } finally {
                kvs.handle.exit();
            }
        } finally {
            if (reader != null) {
                reader.exit();
            }
            Reference.reachabilityFence(owner);
            Reference.reachabilityFence(kvs);
        }
    }

    static byte[] get(Object owner, int of, Handle reader, Kvs kvs, byte[] key) {
        return get(owner, of, reader, kvs, key, null, 0, Bytes.key(key).length);
    }

    static byte[] get(Object owner, int of, Handle reader, Kvs kvs, ByteBuffer key) {
        int size = Bytes.key(key.remaining());
        return get(owner, of, reader, kvs, Bytes.array(key), Bytes.direct(key), Bytes.offset(key), size);
    }

    private static byte[] get(Object owner, int of, Handle reader, Kvs kvs, byte[] key, ByteBuffer buffer, int at, int size) {
        return call(owner, reader, kvs, (one, other) -> Native.get(of, one, other, key, buffer, at, size));
    }

    static int get(Object owner, int of, Handle reader, Kvs kvs, byte[] key, ByteBuffer buffer, int at, int size, ByteBuffer into) {
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        byte[] array = Bytes.array(into);
        ByteBuffer direct = Bytes.direct(into);
        int intoAt = Bytes.offset(into), room = into.remaining();
        int found = call(owner, reader, kvs, (one, other) ->
                Native.getInto(of, one, other, key, buffer, at, size, array, direct, intoAt, room));
        if (found > 0) {
            into.position(into.position() + Math.min(found, room));
        }
        return found;
    }

    static List<byte[]> getMany(Object owner, int of, Handle reader, Kvs kvs, List<byte[]> keys) {
        List<byte[]> values = new ArrayList<>(keys.size());
        for (int at = 0; at < keys.size(); at += MANY) {
            List<byte[]> some = new ArrayList<>(keys.subList(at, Math.min(at + MANY, keys.size())));
            int size = 0;
            for (byte[] key : some) {
                size += Bytes.NUMBER + Bytes.key(key).length;
            }
            byte[] packed = new byte[size];
            int to = 0;
            for (byte[] key : some) {
                Bytes.INT.set(packed, to, key.length);
                System.arraycopy(key, 0, packed, to + Bytes.NUMBER, key.length);
                to += Bytes.NUMBER + key.length;
            }
            byte[] found = call(owner, reader, kvs, (one, other) -> Native.getMany(of, one, other, packed, some.size()));
            for (int from = 0; from < found.length;) {
                int length = (int) Bytes.INT.get(found, from);
                from += Bytes.NUMBER;
                values.add(length < 0 ? null : Arrays.copyOfRange(found, from, from + length));
                from += Math.max(length, 0);
            }
        }
        return values;
    }

    static boolean contains(Object owner, int of, Handle reader, Kvs kvs, byte[] key) {
        Bytes.key(key);
        return call(owner, reader, kvs, (one, other) -> Native.contains(of, one, other, key));
    }

    static RowIterator iterate(Object owner, int of, Handle reader, Kvs kvs, Range range) {
        Objects.requireNonNull(range, "the range is null");
        return call(owner, reader, kvs, (one, other) -> new RowIterator(owner, kvs, of, one, other, range));
    }
}
