package dev.esker;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Objects;

/** Keys, values, texts and paths as native code takes them. */
final class Bytes {
    /** Numbers in packed rows, in the order of the machine. */
    static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    static final int NUMBER = 4;

    private Bytes() {}

    static int key(int size) {
        if (size > Kvs.KEY_MAX) {
            throw EskerException.invalid("the key has " + size + " bytes; " + Kvs.KEY_MAX + " are possible");
        }
        return size;
    }

    static int value(int size) {
        if (size > Kvs.VALUE_MAX) {
            throw EskerException.invalid("the value has " + size + " bytes; " + Kvs.VALUE_MAX + " are possible: split it");
        }
        return size;
    }

    static byte[] key(byte[] key) {
        key(Objects.requireNonNull(key, "the key is null").length);
        return key;
    }

    static byte[] value(byte[] value) {
        value(Objects.requireNonNull(value, "the value is null").length);
        return value;
    }

    /** The array of a buffer, or a copy where nobody may see it; null of a direct one. */
    static byte[] array(ByteBuffer buffer) {
        if (buffer.isDirect()) {
            return null;
        }
        if (buffer.hasArray()) {
            return buffer.array();
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    /** Where the bytes of a buffer begin in its array, or in its memory. */
    static int offset(ByteBuffer buffer) {
        return buffer.isDirect() ? buffer.position() : buffer.hasArray() ? buffer.arrayOffset() + buffer.position() : 0;
    }

    static ByteBuffer direct(ByteBuffer buffer) {
        return buffer.isDirect() ? buffer : null;
    }

    /** A text in UTF-8 with a zero behind it; null of null. */
    static byte[] text(String text) {
        if (text == null) {
            return null;
        }
        if (text.indexOf(0) >= 0) {
            throw EskerException.invalid("a name or an option has a zero byte in it");
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    /** The bytes of a path with a zero behind them, whatever the locale; null of null. */
    static byte[] path(Path path) {
        if (path == null) {
            return null;
        }
        if (path.getFileSystem() != FileSystems.getDefault()) {
            throw EskerException.invalid("the path " + path + " is not in the file system of the machine");
        }
        URI uri = path.toAbsolutePath().toUri();
        String raw = uri.getRawPath();
        byte[] bytes = new byte[raw.length() + 1];
        int size = 0;
        for (int at = 0; at < raw.length(); at++) {
            if (raw.charAt(at) == '%') {
                bytes[size++] = (byte) Integer.parseInt(raw.substring(at + 1, at + 3), 16);
                at += 2;
            } else {
                bytes[size++] = (byte) raw.charAt(at);
            }
        }
        // A directory that is there has a slash at its end.
        while (size > 1 && bytes[size - 1] == '/') {
            size--;
        }
        return Arrays.copyOf(Arrays.copyOf(bytes, size), size + 1);
    }

    static String string(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
