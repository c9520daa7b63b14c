package dev.esker;

import static dev.esker.Temporary.b;
import static dev.esker.Temporary.keys;
import static dev.esker.Temporary.open;
import static dev.esker.Temporary.s;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each call does as its documentation says. */
class EngineTest {
    @TempDir Path dir;
    private Kvdb db;
    private Kvs kvs;

    @BeforeEach
    void start() {
        db = open(dir.resolve("db é"));
        kvs = db.kvsOrCreate("a.b");
    }

    @AfterEach
    void end() {
        db.close();
    }

    @Test
    void arrays_are_stored_and_read() {
        assertNull(kvs.get(b("a")));
        byte[] large = new byte[Kvs.VALUE_MAX];
        Arrays.fill(large, (byte) 9);
        kvs.put(b("a"), b(""));
        kvs.put(b("b"), large, true);
        assertArrayEquals(b(""), kvs.get(b("a")));
        assertArrayEquals(large, kvs.get(b("b")));
        assertTrue(kvs.contains(b("a")));
        kvs.delete(b("a"));
        assertFalse(kvs.contains(b("a")));
        db.close();
        db = open(dir.resolve("db é"));
        assertEquals(List.of("a.b"), db.kvsNames());
        assertArrayEquals(large, db.kvs("a.b").get(b("b")));
    }

    @Test
    void buffers_of_each_kind_are_stored_and_read() {
        byte[] value = new byte[5000];
        Arrays.fill(value, (byte) 3);
        ByteBuffer direct = ByteBuffer.allocateDirect(6000);
        direct.position(500).limit(5500);
        direct.duplicate().put(value);
        ByteBuffer heap = ByteBuffer.wrap(value, 10, 4000).slice();
        kvs.put(ByteBuffer.wrap(b("xkeyx"), 1, 3), direct);
        kvs.put(ByteBuffer.wrap(b("heap")).asReadOnlyBuffer(), heap.asReadOnlyBuffer());
        assertArrayEquals(value, kvs.get(b("key")));
        assertEquals(4000, kvs.get(ByteBuffer.wrap(b("heap"))).length);
        for (ByteBuffer into : List.of(ByteBuffer.allocate(6000), ByteBuffer.allocateDirect(6000))) {
            into.position(100);
            assertEquals(5000, kvs.get(b("key"), into));
            assertEquals(5100, into.position());
            assertEquals(3, into.get(100));
            assertEquals(0, into.get(99));
            assertEquals(-1, kvs.get(b("none"), into));
            assertEquals(5000, kvs.get(ByteBuffer.wrap(b("key")), into));
            assertEquals(6000, into.position());
        }
        assertThrows(java.nio.ReadOnlyBufferException.class,
                () -> kvs.get(b("key"), ByteBuffer.allocate(9).asReadOnlyBuffer()));
    }

    @Test
    void walks_go_both_ways_within_bounds() {
        for (int n = 0; n < 2000; n++) {
            kvs.put(b(String.format("k%04d", n)), b("v" + n));
        }
        assertEquals(2000, keys(kvs.iterate()).size());
        assertEquals(List.of("k0003", "k0004"), keys(kvs.iterate(new Range().from(b("k0003")).to(b("k0005")))));
        assertEquals(List.of("k0004", "k0005"), keys(kvs.iterate(new Range().after(b("k0003")).through(b("k0005")))));
        assertEquals(List.of("k1999", "k1998"), keys(kvs.iterate(new Range().reverse().limit(2))));
        assertEquals(1000, keys(kvs.iterate(new Range().prefix(b("k1")).reverse())).size());
        try (RowIterator rows = kvs.iterate(new Range().keysOnly())) {
            rows.seek(b("k0100x"));
            Row row = rows.next();
            assertEquals("k0101", s(row.key()));
            assertEquals(0, row.value().length);
        }
        try (RowIterator rows = kvs.iterate(new Range().reverse())) {
            rows.next();
            rows.seek(b("k0100"));
            Row row = rows.next();
            assertEquals("k0099", s(row.key()));
            assertEquals("v99", s(row.value()));
            assertEquals(3, row.valueBuffer().remaining());
            assertEquals(5, row.keyBuffer().remaining());
        }
    }

    @Test
    void values_of_many_keys_come_at_once() {
        List<byte[]> wanted = new java.util.ArrayList<>();
        for (int n = 0; n < 1500; n++) {
            if (n % 3 != 0) {
                kvs.put(b("k" + n), b("v" + n));
            }
            wanted.add(b("k" + n));
        }
        List<byte[]> values = kvs.getMany(wanted);
        for (int n = 0; n < 1500; n++) {
            assertEquals(n % 3 == 0 ? null : "v" + n, s(values.get(n)));
        }
    }

    @Test
    void batches_span_kvss() {
        Kvs other = db.createKvs("other", new KvsSettings().compression("lz4"));
        kvs.put(b("old1"), b("x"));
        Batch batch = new Batch().deletePrefix(kvs, b("old")).put(kvs, b("a"), b("1")).put(other, b("b"), new byte[9000])
                .delete(kvs, b("c")).deleteRange(kvs, b("x"), null);
        assertEquals(5, batch.size());
        db.write(batch, true);
        db.write(batch);
        assertEquals(List.of("a"), keys(kvs.iterate()));
        assertEquals(9000, other.get(b("b")).length);
        batch.clear();
        db.write(batch);
        kvs.deleteRange(null, null);
        other.deletePrefix(b("b"));
        assertEquals(List.of(), keys(kvs.iterate()));
        assertEquals(List.of(), keys(other.iterate()));
    }

    @Test
    void transactions_commit_conflict_and_roll_back() {
        kvs.put(b("a"), b("0"));
        try (Transaction one = db.begin(); Transaction two = db.begin(); Transaction three = db.begin()) {
            one.put(kvs, b("a"), b("1"));
            two.getForUpdate(kvs, b("a"));
            two.put(kvs, b("b"), b("2"));
            three.deletePrefix(kvs, b("a"));
            assertNull(three.get(kvs, b("a")));
            three.close();
            assertEquals("0", s(two.get(kvs, b("a"))));
            one.commit(true);
            assertTrue(two.isChanged(kvs, b("a")));
            EskerException thrown = assertThrows(EskerException.class, two::commit);
            assertEquals(EskerException.Kind.TRANSACTION_CONFLICT, thrown.kind());
            assertTrue(thrown.isRetryable());
        }
        assertEquals(List.of("a"), keys(kvs.iterate()));
        assertEquals("1", s(kvs.get(b("a"))));
        assertTrue(kvs.compareAndSet(b("a"), b("1"), b("2")));
        assertFalse(kvs.compareAndSet(b("a"), b("1"), b("3")));
        assertTrue(kvs.compareAndSet(b("a"), b("2"), null));
        assertNull(kvs.get(b("a")));
    }

    @Test
    void snapshots_stay() {
        kvs.put(b("a"), b("0"));
        try (Snapshot snapshot = db.snapshot()) {
            kvs.put(b("a"), b("1"));
            assertEquals("0", s(snapshot.get(kvs, b("a"))));
            assertEquals("0", s(snapshot.getMany(kvs, List.of(b("a"))).get(0)));
            assertEquals("0", s(snapshot.iterate(kvs).next().value()));
            assertEquals(1, snapshot.get(kvs, b("a"), ByteBuffer.allocate(10)));
        }
    }

    @Test
    void copies_checks_and_maintenance_work() {
        kvs.put(b("a"), b("0"));
        kvs.setMetadata(b("mine"));
        kvs.setTtlMs(0);
        kvs.setCompression("zstd");
        assertEquals("mine", s(kvs.metadata()));
        assertTrue(kvs.options().contains("zstd"));
        db.sync();
        db.ingest();
        db.settle();
        assertTrue(db.stats().startsWith("{"));
        assertTrue(db.compact().startsWith("{"));
        db.compactTo(1.5);
        assertTrue(db.compactStatus().startsWith("{"));
        assertTrue(db.formatVersion() > 0);
        Path copy = dir.resolve("copy");
        assertTrue(db.backup(copy, null).startsWith("{"));
        assertTrue(Kvdb.check(copy, null).isSound());
        Kvdb.repair(copy, dir.resolve("repaired"), null, null);
        try (Kvdb repaired = Kvdb.open(dir.resolve("repaired"), Kvdb.Mode.READ_ONLY, Temporary.small())) {
            assertEquals("0", s(repaired.kvs("a.b").get(b("a"))));
        }
        Kvdb.destroy(copy, null);
        assertFalse(java.nio.file.Files.exists(copy.resolve("capacity")));
        assertEquals("0.1.0", Kvdb.version());
    }
}
