package dev.esker;

import static dev.esker.Temporary.b;
import static dev.esker.Temporary.open;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Wrong calls throw, and never end the virtual machine. */
class MisuseTest {
    @TempDir Path dir;

    private static void throwsKind(EskerException.Kind kind, Executable call) {
        EskerException thrown = assertThrows(EskerException.class, call);
        assertEquals(kind, thrown.kind(), thrown.getMessage());
        assertTrue(thrown.getMessage().length() > 10);
    }

    private static void throwsClosed(Executable call) {
        throwsKind(EskerException.Kind.CLOSED, call);
    }

    @Test
    void closed_handles_throw_in_any_order_of_closing() {
        Kvdb db = open(dir);
        Kvs kvs = db.kvsOrCreate("a");
        kvs.put(b("k"), b("v"));
        Snapshot snapshot = db.snapshot();
        Transaction txn = db.begin();
        RowIterator rows = kvs.iterate();
        RowIterator other = snapshot.iterate(kvs);
        Batch batch = new Batch().put(kvs, b("k"), b("v"));
        rows.next();
        other.close();
        other.close();
        throwsClosed(other::next);
        throwsClosed(() -> other.seek(b("k")));
        db.close();
        db.close();
        for (Executable call : List.<Executable>of(() -> kvs.get(b("k")), () -> kvs.put(b("k"), b("v")), rows::hasNext,
                () -> kvs.getMany(List.of(b("k"))), () -> kvs.delete(b("k")), () -> snapshot.get(kvs, b("k")),
                () -> txn.put(kvs, b("k"), b("v")), txn::commit, () -> db.write(batch), db::sync, db::stats, db::begin,
                db::snapshot, () -> db.kvs("a"), kvs::iterate, kvs::options, () -> snapshot.iterate(kvs),
                () -> new Batch().delete(kvs, b("k")), () -> kvs.get(b("k"), ByteBuffer.allocateDirect(9)))) {
            throwsClosed(call);
        }
        rows.close();
        txn.close();
        snapshot.close();
        txn.close();
    }

    @Test
    void ended_transactions_and_snapshots_throw() {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            Transaction txn = db.begin();
            RowIterator rows = txn.iterate(kvs);
            txn.commit();
            throwsClosed(() -> txn.put(kvs, b("k"), b("v")));
            throwsClosed(txn::commit);
            rows.close();
            Snapshot snapshot = db.snapshot();
            snapshot.close();
            snapshot.close();
            throwsClosed(() -> snapshot.get(kvs, b("k")));
        }
    }

    @Test
    void close_ends_calls_of_other_threads() throws Exception {
        for (int round = 0; round < 10; round++) {
            Kvdb db = open(dir);
            Kvs kvs = db.kvsOrCreate("a");
            for (int n = 0; n < 2000; n++) {
                kvs.put(b("key" + n), new byte[200]);
            }
            CountDownLatch started = new CountDownLatch(4);
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            List<Thread> threads = new ArrayList<>();
            RowIterator shared = kvs.iterate();
            for (int number = 0; number < 4; number++) {
                int which = number;
                Thread thread = new Thread(() -> {
                    started.countDown();
                    try {
                        while (true) {
                            if (which == 0) {
                                kvs.put(b("w"), new byte[100]);
                            } else if (which == 1) {
                                kvs.get(b("key7"));
                            } else if (which == 2) {
                                try (RowIterator rows = kvs.iterate()) {
                                    while (rows.hasNext()) {
                                        rows.next();
                                    }
                                }
                            } else {
                                shared.seek(b("key"));
                                shared.next();
                            }
                        }
                    } catch (EskerException expected) {
                        if (expected.kind() != EskerException.Kind.CLOSED) {
                            wrong.set(expected);
                        }
                    } catch (Throwable other) {
                        wrong.set(other);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            started.await();
            Thread.sleep(5);
            if (round % 2 == 0) {
                shared.close();
            }
            db.close();
            for (Thread thread : threads) {
                thread.join(20_000);
                assertTrue(!thread.isAlive(), "a call did not end");
            }
            assertNull(wrong.get(), () -> String.valueOf(wrong.get()));
        }
    }

    @Test
    void null_throws() {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            for (Executable call : List.<Executable>of(() -> kvs.put(null, b("v")), () -> kvs.put(b("k"), null),
                    () -> kvs.get((byte[]) null), () -> kvs.get((ByteBuffer) null), () -> kvs.delete(null),
                    () -> kvs.deletePrefix(null), () -> kvs.getMany(null), () -> kvs.iterate(null), () -> db.kvs(null),
                    () -> db.write(null), () -> Kvdb.open(null), () -> Kvdb.open(dir, null, null),
                    () -> new Batch().put(null, b("k"), b("v")), () -> new Batch().put(kvs, null, b("v")),
                    () -> kvs.getMany(java.util.Arrays.asList(b("k"), null)), () -> kvs.setMetadata(null),
                    () -> db.snapshot().get(null, b("k")), () -> new Range().from(null), () -> db.backup(null, null))) {
                assertThrows(NullPointerException.class, call);
            }
        }
    }

    @Test
    void oversize_and_impossible_arguments_are_refused() {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            byte[] key = new byte[Kvs.KEY_MAX + 1], value = new byte[Kvs.VALUE_MAX + 1];
            for (Executable call : List.<Executable>of(() -> kvs.put(key, b("v")), () -> kvs.put(b("k"), value),
                    () -> kvs.get(key), () -> kvs.get(ByteBuffer.allocateDirect(9999)), () -> kvs.delete(key),
                    () -> new Batch().put(kvs, b("k"), value), () -> kvs.setMetadata(new byte[5000]),
                    () -> db.kvsOrCreate("a\0b"), () -> db.kvsOrCreate("x".repeat(300)), () -> kvs.setTtlMs(-1),
                    () -> kvs.deletePrefix(b("")), () -> kvs.deleteRange(b("b"), b("a")), () -> kvs.setPolicy("none such"),
                    () -> new Options().memory(-1).durability(-1, 0), () -> new Range().limit(-1),
                    () -> kvs.iterate(new Range().prefix(b("a")).from(b("b"))).close(),
                    () -> Kvdb.open(dir.resolve("x"), Kvdb.Mode.CREATE, new Options().tuning("no such", 1)),
                    () -> Kvdb.open(dir.resolve("x"), Kvdb.Mode.CREATE, new Options().memory(1)))) {
                throwsKind(EskerException.Kind.INVALID, call);
            }
            assertNull(kvs.get(new byte[Kvs.KEY_MAX]));
        }
    }

    @Test
    void opening_twice_and_what_is_not_there_is_told() {
        try (Kvdb db = open(dir.resolve("a"))) {
            throwsKind(EskerException.Kind.IN_USE, () -> open(dir.resolve("a")));
            throwsKind(EskerException.Kind.NOT_FOUND, () -> Kvdb.open(dir.resolve("b"), Kvdb.Mode.OPEN, null));
            throwsKind(EskerException.Kind.EXISTS, () -> {
                db.createKvs("k", null);
                db.createKvs("k", null);
            });
            throwsKind(EskerException.Kind.NOT_FOUND, () -> db.kvs("none"));
        }
    }

    @Test
    void kvs_of_another_kvdb_is_refused() {
        try (Kvdb one = open(dir.resolve("a")); Kvdb two = open(dir.resolve("b"))) {
            Kvs kvs = one.kvsOrCreate("k");
            kvs.put(b("k"), b("v"));
            throwsKind(EskerException.Kind.INVALID, () -> two.write(new Batch().put(kvs, b("k"), b("v"))));
            try (Snapshot snapshot = two.snapshot(); Transaction txn = two.begin()) {
                throwsKind(EskerException.Kind.INVALID, () -> snapshot.get(kvs, b("k")));
                throwsKind(EskerException.Kind.INVALID, () -> txn.put(kvs, b("k"), b("v")));
                throwsKind(EskerException.Kind.INVALID, () -> snapshot.iterate(kvs));
            }
        }
    }

    @Test
    void kvs_is_dropped_beside_an_iterator() {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            for (int n = 0; n < 3000; n++) {
                kvs.put(b("key" + n), new byte[100]);
            }
            RowIterator rows = kvs.iterate();
            rows.next();
            db.dropKvs("a");
            try {
                while (rows.hasNext()) {
                    rows.next();
                }
            } catch (EskerException closed) {
                assertEquals(EskerException.Kind.CLOSED, closed.kind());
            }
            rows.close();
            throwsClosed(() -> kvs.get(b("key1")));
        }
    }

    @Test
    void interrupt_changes_nothing() {
        try (Kvdb db = open(dir)) {
            Thread.currentThread().interrupt();
            Kvs kvs = db.kvsOrCreate("a");
            kvs.put(b("k"), b("v"), true);
            assertNotNull(kvs.get(b("k")));
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void interrupts_come_in_the_middle_of_calls() throws Exception {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            Thread thread = new Thread(() -> {
                try {
                    for (int n = 0; n < 3000; n++) {
                        kvs.put(b("k" + n), new byte[100], n % 100 == 0);
                        assertNotNull(kvs.get(b("k" + n)));
                        kvs.iterate(new Range().limit(2)).close();
                    }
                } catch (Throwable other) {
                    wrong.set(other);
                }
            });
            thread.start();
            int interrupts = 0;
            while (thread.isAlive()) {
                thread.interrupt();
                interrupts++;
                Thread.sleep(1);
            }
            assertNull(wrong.get(), () -> String.valueOf(wrong.get()));
            assertTrue(interrupts > 1);
            assertEquals(3000, Temporary.keys(kvs.iterate()).size());
        }
    }

    @Test
    void collector_comes_in_the_middle_of_calls() throws Exception {
        AtomicBoolean ends = new AtomicBoolean();
        Thread collector = new Thread(() -> {
            while (!ends.get()) {
                System.gc();
            }
        });
        collector.start();
        try {
            for (int round = 0; round < 20; round++) {
                // Nothing refers to the KVDB, the snapshots and the iterators but the calls that use them.
                Kvs kvs = open(dir.resolve("db" + round)).kvsOrCreate("a");
                for (int n = 0; n < 200; n++) {
                    kvs.put(b("k" + n), new byte[300]);
                    assertNotNull(kvs.iterate().next());
                    assertEquals(1, kvs.getMany(List.of(b("k0"))).size());
                }
                assertEquals(200, Temporary.keys(kvs.iterate()).size());
            }
        } finally {
            ends.set(true);
            collector.join();
        }
    }

    @Test
    void collector_closes_what_nobody_closed() throws Exception {
        for (int round = 0; round < 3; round++) {
            Kvs kvs = open(dir).kvsOrCreate("a");
            kvs.put(b("k" + round), b("v"));
            System.gc();
            for (int n = 0; n < 200; n++) {
                kvs.iterate().next();
            }
            System.gc();
            assertNotNull(kvs.get(b("k" + round)));
            kvs = null;
            for (int tries = 0;; tries++) {
                System.gc();
                Thread.sleep(50);
                try {
                    open(dir).close();
                    break;
                } catch (EskerException inUse) {
                    assertEquals(EskerException.Kind.IN_USE, inUse.kind());
                    assertTrue(tries < 100, "nobody closed it");
                }
            }
        }
    }

    @Test
    void threads_that_garble_a_batch_are_told() throws Exception {
        try (Kvdb db = open(dir)) {
            Kvs kvs = db.kvsOrCreate("a");
            for (int round = 0; round < 50; round++) {
                Batch batch = new Batch();
                Runnable adds = () -> {
                    try {
                        for (int n = 0; n < 500; n++) {
                            batch.put(kvs, new byte[1 + n % 90], new byte[n % 70]);
                        }
                    } catch (RuntimeException refused) {
                        assertNotNull(refused);
                    }
                };
                Thread other = new Thread(adds);
                other.start();
                adds.run();
                other.join();
                try {
                    db.write(batch);
                } catch (EskerException told) {
                    assertNotNull(told.getMessage());
                }
            }
        }
    }

    @Test
    void exit_without_close_loses_nothing() throws Exception {
        assertEquals(7, Temporary.child(dir.toString(), "exit").waitFor());
        try (Kvdb db = open(dir)) {
            for (int n = 0; n < 500; n++) {
                assertNotNull(db.kvs("a").get(b("key" + n)));
            }
        }
    }

    @Test
    void exit_in_the_middle_of_calls_loses_nothing() throws Exception {
        for (int millis : new int[] {0, 5, 50}) {
            Path place = dir.resolve("db" + millis);
            assertEquals(7, Temporary.child(place.toString(), "busy", String.valueOf(millis)).waitFor());
            try (Kvdb db = open(place)) {
                for (int n = 0; n < 500; n++) {
                    assertNotNull(db.kvs("a").get(b("key" + n)));
                }
            }
        }
    }

    @Test
    void kill_loses_nothing_acknowledged() throws Exception {
        Process child = Temporary.child(dir.toString(), "kill");
        BufferedReader said = new BufferedReader(new InputStreamReader(child.getInputStream()));
        int last = -1;
        while (last < 100) {
            last = Integer.parseInt(said.readLine());
        }
        // By its handle, so that what it said can still be read.
        child.toHandle().destroyForcibly();
        for (String line = said.readLine(); line != null && !line.isEmpty(); line = said.readLine()) {
            last = Math.max(last, Integer.parseInt(line));
        }
        child.waitFor();
        try (Kvdb db = open(dir)) {
            for (int n = 0; n <= last; n++) {
                assertNotNull(db.kvs("a").get(b("key" + n)));
            }
        }
    }
}
