package dev.esker.ycsb;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import site.ycsb.generator.ScrambledZipfianGenerator;

/**
 * Esker beside RocksDB (rocksdbjni), without the client of YCSB: the same loads by one thread, on new databases that take
 * turns. Keys have 16 bytes, values 1,000 that do not compress. Medians of the rounds are shown, in thousand rows a second.
 * {@code bindings/java/ycsb/compare} runs it.
 */
final class Compare {
    private static final String[] LOADS = {"load", "batches of 100", "A", "C", "scans of 50 rows, thousand scans"};
    private static final int BATCH = 100, SCAN = 50, SAMPLES = 400_000;

    private final Random random = new Random(1);
    private final double seconds;
    private final byte[][] values = new byte[1000][1000], rows;
    private final byte[][] frequent = new byte[SAMPLES][], uniform = new byte[SAMPLES][];
    private final boolean[] updates = new boolean[SAMPLES];

    private interface Work {
        void run(int n) throws Exception;
    }

    private Compare(int count, double seconds) {
        this.seconds = seconds;
        for (byte[] value : values) {
            random.nextBytes(value);
        }
        rows = new byte[count][];
        Arrays.setAll(rows, n -> String.format("user%012d", n).getBytes());
        ScrambledZipfianGenerator zipf = new ScrambledZipfianGenerator(count);
        for (int n = 0; n < SAMPLES; n++) {
            frequent[n] = rows[zipf.nextValue().intValue()];
            uniform[n] = rows[random.nextInt(count)];
            updates[n] = random.nextBoolean();
        }
        Collections.shuffle(Arrays.asList(rows), random);
    }

    /** Three digits that count. */
    private static String figure(double value) {
        return value < 100 ? String.format("%.1f", value) : Long.toString(Math.round(value));
    }

    /** Runs a loop that ends after so many, or after some seconds; its rounds a second. */
    private static double rate(int most, double seconds, Work work) throws Exception {
        long began = System.nanoTime();
        int n = 0;
        do {
            work.run(n++);
        } while (n < most && (n % 64 != 0 || System.nanoTime() - began < seconds * 1e9));
        return n / ((System.nanoTime() - began) / 1e9);
    }

    private static void check(boolean found) {
        if (!found) {
            throw new IllegalStateException("a row is lost");
        }
    }

    /** Rates of the loads, in their order. */
    private double[] run(EngineClient.Store store) throws Exception {
        int all = Integer.MAX_VALUE;
        double load = rate(rows.length, 1e9, n -> store.put(rows[n], values[n % 1000]));
        store.settle();
        // Caches and the compiler warm up.
        rate(rows.length, 3 * seconds, n -> check(store.get(rows[n]) != null));
        double c = rate(all, seconds, n -> check(store.get(frequent[n % SAMPLES]) != null));
        double a = rate(all, seconds, n -> {
            byte[] key = frequent[n % SAMPLES];
            if (updates[n % SAMPLES]) {
                store.put(key, values[n % 1000]);
            } else {
                check(store.get(key) != null);
            }
        });
        store.settle();
        double scans = rate(all, seconds, n -> check(!store.scan(uniform[n % SAMPLES], SCAN).isEmpty()));
        List<byte[]> keys = Arrays.asList(uniform);
        double batches = rate(all, seconds, n -> {
            int from = n % (SAMPLES / BATCH) * BATCH;
            store.putAll(keys.subList(from, from + BATCH), values[n % 1000]);
        });
        return new double[] {load, batches * BATCH, a, c, scans};
    }

    public static void main(String[] arguments) throws Exception {
        Path scratch = Path.of(arguments[0]);
        int rounds = Integer.parseInt(arguments[2]);
        Compare compare = new Compare(Integer.parseInt(arguments[1]), Double.parseDouble(arguments[3]));
        double[][][] rates = new double[2][LOADS.length][rounds];
        for (int round = 0; round < rounds; round++) {
            for (int turn = 0; turn < 2; turn++) {
                int side = (round + turn) % 2;
                Path dir = Files.createDirectory(scratch.resolve(side + "-" + round));
                Properties properties = new Properties();
                properties.setProperty("engine.dir", dir.toString());
                properties.setProperty("engine.memory", arguments[4]);
                try (EngineClient.Store store = (side == 0 ? new EskerClient() : new RocksDbClient()).open(properties)) {
                    double[] measured = compare.run(store);
                    for (int load = 0; load < LOADS.length; load++) {
                        rates[side][load][round] = measured[load] / 1000;
                    }
                }
                try (var files = Files.walk(dir)) {
                    files.sorted(Collections.reverseOrder()).forEach(file -> file.toFile().delete());
                }
            }
        }
        System.out.println("| load | Esker | RocksDB | ratio |\n| --- | ---: | ---: | ---: |");
        for (int load = 0; load < LOADS.length; load++) {
            double[] esker = rates[0][load], rocksdb = rates[1][load];
            Arrays.sort(esker);
            Arrays.sort(rocksdb);
            double ours = esker[rounds / 2], theirs = rocksdb[rounds / 2];
            System.out.printf("| %s | %s | %s | %.2f |%n", LOADS[load], figure(ours), figure(theirs), ours / theirs);
        }
    }
}
