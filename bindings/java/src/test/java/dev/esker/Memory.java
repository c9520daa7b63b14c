package dev.esker;

import static dev.esker.Temporary.b;

import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Fails, and takes handles and gives them back, in so many rounds with a hundred openings among them. Ends with an error
 * when resident memory grows after the first tenth.
 */
final class Memory {
    /** An allocator and the virtual machine may add so much by themselves, in KiB. */
    private static final long MOST = 32 << 10;

    private static final byte[] LONG = new byte[Kvs.KEY_MAX + 1], LARGE = new byte[Kvs.VALUE_MAX + 1];

    private Memory() {}

    private static long resident() throws Exception {
        System.gc();
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IllegalStateException("the system does not say how much memory is resident");
    }

    private static void refused(Runnable call) {
        try {
            call.run();
        } catch (EskerException expected) {
            return;
        }
        throw new IllegalStateException("a call that cannot be was not refused");
    }

    private static void round(Kvdb db, Kvs kvs, int n) {
        refused(() -> db.kvs("none"));
        refused(() -> kvs.deleteRange(b("b"), b("a")));
        refused(() -> kvs.put(LONG, b("v")));
        refused(() -> kvs.put(b("k"), LARGE));
        RowIterator ended;
        try (Transaction txn = db.begin(); Snapshot snapshot = db.snapshot(); RowIterator rows = snapshot.iterate(kvs)) {
            txn.put(kvs, b("k"), b("v"));
            rows.next();
            db.write(new Batch().put(kvs, b("k"), b("v")).delete(kvs, b("l")));
            ended = rows;
        }
        refused(ended::hasNext);
        RowIterator rows = kvs.iterate(new Range().limit(1));
        // One of a hundred is left to the collector.
        if (n % 100 != 0) {
            rows.close();
        }
        db.kvs("a").get(b("k"));
    }

    public static void main(String[] arguments) throws Exception {
        Path dir = Path.of(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]), opening = Math.max(1, rounds / 100);
        long before = 0;
        for (int n = 0; n < rounds;) {
            try (Kvdb db = Temporary.open(dir)) {
                Kvs kvs = db.kvsOrCreate("a");
                kvs.put(b("k"), b("v"));
                refused(() -> Kvdb.open(dir.resolve("none"), Kvdb.Mode.OPEN, Temporary.small()));
                // It waits before it says that the KVDB is in use.
                if (n % (opening * 10) == 0) {
                    refused(() -> Temporary.open(dir));
                }
                for (int end = Math.min(rounds, n + opening); n < end; n++) {
                    round(db, kvs, n);
                }
            }
            if (before == 0 && n >= rounds / 10) {
                before = resident();
            }
        }
        long grown = resident() - before;
        System.out.println(rounds + " rounds: " + grown + " KiB more than after a tenth of them");
        if (grown > MOST) {
            System.exit(1);
        }
    }
}
