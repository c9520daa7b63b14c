package dev.esker.ycsb;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/** The fields of a record as one value: of each the sizes of name and content, then both. The same for each engine. */
final class Fields {
    private Fields() {}

    static byte[] pack(Map<String, ByteIterator> fields) {
        int size = 0;
        byte[][] parts = new byte[2 * fields.size()][];
        int at = 0;
        for (Map.Entry<String, ByteIterator> field : fields.entrySet()) {
            parts[at] = field.getKey().getBytes(StandardCharsets.UTF_8);
            parts[at + 1] = field.getValue().toArray();
            size += 8 + parts[at].length + parts[at + 1].length;
            at += 2;
        }
        ByteBuffer packed = ByteBuffer.allocate(size);
        for (int n = 0; n < parts.length; n += 2) {
            packed.putInt(parts[n].length).putInt(parts[n + 1].length).put(parts[n]).put(parts[n + 1]);
        }
        return packed.array();
    }

    /** Adds the fields wanted to a result; null is all. */
    static void unpack(byte[] value, Set<String> wanted, Map<String, ByteIterator> result) {
        ByteBuffer from = ByteBuffer.wrap(value);
        while (from.hasRemaining()) {
            int nameSize = from.getInt(), size = from.getInt(), at = from.position();
            String name = new String(value, at, nameSize, StandardCharsets.UTF_8);
            if (wanted == null || wanted.contains(name)) {
                result.put(name, new ByteArrayByteIterator(value, at + nameSize, size));
            }
            from.position(at + nameSize + size);
        }
    }
}
