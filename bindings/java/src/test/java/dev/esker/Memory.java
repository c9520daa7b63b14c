package dev.esker;

import static dev.esker.Temporary.b;

import java.nio.file.Files;
import java.nio.file.Path;

/** Opens, fails and closes again and again, and ends with an error when resident memory grows. */
final class Memory {
    /** An allocator and the virtual machine may add so much by themselves, in KiB. */
    private static final long MOST = 32 << 10;

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

    private static void round(Kvdb db, Kvs kvs) {
        for (int n = 0; n < 20; n++) {
            refused(() -> db.kvs("none"));
            refused(() -> kvs.deleteRange(b("b"), b("a")));
            try (Transaction txn = db.begin(); Snapshot snapshot = db.snapshot(); RowIterator rows = snapshot.iterate(kvs)) {
                txn.put(kvs, b("k"), b("v"));
                rows.next();
            }
            kvs.iterate(new Range().limit(1)).close();
            db.kvs("a").get(b("k"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[1]);
        long before = 0;
        for (int n = 0; n < rounds; n++) {
            try (Kvdb db = Temporary.open(Path.of(arguments[0]))) {
                Kvs kvs = db.kvsOrCreate("a");
                kvs.put(b("k"), b("v"));
                refused(() -> Temporary.open(Path.of(arguments[0])));
                round(db, kvs);
            }
            if (n == rounds / 2) {
                before = resident();
            }
        }
        long grown = resident() - before;
        System.out.println("resident memory grew by " + grown + " KiB in " + rounds / 2 + " rounds");
        if (grown > MOST) {
            System.exit(1);
        }
    }
}
