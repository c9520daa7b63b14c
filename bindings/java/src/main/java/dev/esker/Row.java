package dev.esker;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A key with its value, as an iterator returns them. It stays as it is, whatever becomes of the iterator. */
public final class Row {
    private final byte[] page;
    private final int at;
    private final int keySize;
    private final int valueSize;

    Row(byte[] page, int at, int keySize, int valueSize) {
        this.page = page;
        this.at = at;
        this.keySize = keySize;
        this.valueSize = valueSize;
    }

    /**
     * The key.
     *
     * @return a copy
     */
    public byte[] key() {
        return Arrays.copyOfRange(page, at, at + keySize);
    }

    /**
     * The value; empty where the iterator has keys only.
     *
     * @return a copy
     */
    public byte[] value() {
        return Arrays.copyOfRange(page, at + keySize, at + keySize + valueSize);
    }

    /**
     * The key without a copy.
     *
     * @return a read-only buffer
     */
    public ByteBuffer keyBuffer() {
        return ByteBuffer.wrap(page, at, keySize).slice().asReadOnlyBuffer();
    }

    /**
     * The value without a copy. The buffer keeps the memory of some hundred rows.
     *
     * @return a read-only buffer
     */
    public ByteBuffer valueBuffer() {
        return ByteBuffer.wrap(page, at + keySize, valueSize).slice().asReadOnlyBuffer();
    }
}
