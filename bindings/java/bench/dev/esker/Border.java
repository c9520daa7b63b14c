package dev.esker;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;

/**
 * Measures a call from Java beside the same call in Rust: on one KVS in one process, by one thread. Keys have 16 bytes,
 * values 1,000, in DRAM. Short rounds of both alternate; medians are shown. {@code bindings/java/bench/border} runs it.
 */
final class Border {
    private static final int KEYS = 1000;
    private static final int PUTS = 10;

    private Border() {}

    private interface Loop {
        void run(int from, int count);
    }

    public static void main(String[] arguments) {
        Random random = new Random(1);
        byte[] value = new byte[1000];
        Arrays.fill(value, (byte) 7);
        try (Kvdb db = Kvdb.open(Path.of(arguments[0]), Kvdb.Mode.CREATE, new Options().memory(1 << 30))) {
            Kvs kvs = db.kvsOrCreate("a");
            byte[][] keys = new byte[KEYS][];
            byte[] packed = new byte[16 * KEYS];
            for (int n = 0; n < KEYS; n++) {
                keys[n] = String.format("kkkkkkkk%08d", n).getBytes();
                kvs.put(keys[n], value);
            }
            java.util.Collections.shuffle(Arrays.asList(keys), random);
            for (int n = 0; n < KEYS; n++) {
                System.arraycopy(keys[n], 0, packed, 16 * n, 16);
            }
            ByteBuffer into = ByteBuffer.allocateDirect(1000);
            System.out.println("| call | Rust, ns | Java, ns | over Rust, ns |\n| --- | ---: | ---: | ---: |");
            compare("put `byte[]`", "put", kvs, packed, 20_001, PUTS, (from, count) -> {
                for (int n = from; n < from + count; n++) {
                    kvs.put(keys[n], value);
                }
            });
            compare("get into a direct buffer", "get_into", kvs, packed, 1001, KEYS, (from, count) -> {
                for (int n = from; n < from + count; n++) {
                    into.clear();
                    kvs.get(keys[n], into);
                }
            });
            compare("get `byte[]`", "get", kvs, packed, 1001, KEYS, (from, count) -> {
                for (int n = from; n < from + count; n++) {
                    kvs.get(keys[n]);
                }
            });
            compare("scan, a row", "scan", kvs, packed, 1001, KEYS, (from, count) -> {
                try (RowIterator rows = kvs.iterate()) {
                    while (rows.hasNext()) {
                        rows.next();
                    }
                }
            });
        }
    }

    private static void compare(String name, String operation, Kvs kvs, byte[] packed, int rounds, int calls, Loop java) {
        byte[] text = Bytes.text(operation);
        double[][] all = new double[2][rounds];
        // The first rounds are the compiler's.
        for (int round = -rounds / 2; round < rounds; round++) {
            int from = calls == KEYS ? 0 : Math.floorMod(round * calls, KEYS);
            byte[] part = Arrays.copyOfRange(packed, 16 * from, 16 * (from + calls));
            for (int turn = 0; turn < 2; turn++) {
                int side = (round + turn) & 1;
                long took;
                if (side == 0) {
                    took = Kvdb.use(kvs, kvs.handle, pointer -> Native.measure(pointer, text, part, calls));
                } else {
                    long began = System.nanoTime();
                    java.run(from, calls);
                    took = System.nanoTime() - began;
                }
                if (round >= 0) {
                    all[side][round] = (double) took / calls;
                }
            }
        }
        Arrays.sort(all[0]);
        Arrays.sort(all[1]);
        double rust = all[0][rounds / 2], ours = all[1][rounds / 2];
        System.out.printf("| %s | %.0f | %.0f | %.0f |%n", name, rust, ours, ours - rust);
    }
}
