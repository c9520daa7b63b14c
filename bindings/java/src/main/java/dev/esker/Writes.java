package dev.esker;

import java.nio.ByteBuffer;

/** Writes to a KVS, within a transaction where there is one. {@code owner} has the handle of the transaction or the KVS. */
final class Writes {
    private Writes() {}

    static void put(Object owner, Handle txn, Kvs kvs, byte[] key, byte[] value, int flags) {
        put(owner, txn, kvs, key, null, 0, Bytes.key(key).length, value, null, 0, Bytes.value(value).length, flags);
    }

    static void put(Object owner, Handle txn, Kvs kvs, ByteBuffer key, ByteBuffer value, int flags) {
        int keySize = Bytes.key(key.remaining()), size = Bytes.value(value.remaining());
        put(owner, txn, kvs, Bytes.array(key), Bytes.direct(key), Bytes.offset(key), keySize,
                Bytes.array(value), Bytes.direct(value), Bytes.offset(value), size, flags);
    }

    private static void put(Object owner, Handle txn, Kvs kvs, byte[] key, ByteBuffer keyBuffer, int keyAt, int keySize,
            byte[] value, ByteBuffer valueBuffer, int valueAt, int valueSize, int flags) {
        Reads.call(owner, txn, kvs, (one, other) -> {
            Native.put(one, other, key, keyBuffer, keyAt, keySize, value, valueBuffer, valueAt, valueSize, flags);
            return null;
        });
    }

    static void delete(Object owner, int what, Handle txn, Kvs kvs, byte[] one, byte[] other) {
        Reads.call(owner, txn, kvs, (pointer, kvsPointer) -> {
            Native.delete(what, pointer, kvsPointer, one, other);
            return null;
        });
    }

    static void deleteRange(Object owner, Handle txn, Kvs kvs, byte[] from, byte[] to) {
        delete(owner, 2, txn, kvs, from == null ? null : Bytes.key(from), to == null ? null : Bytes.key(to));
    }
}
