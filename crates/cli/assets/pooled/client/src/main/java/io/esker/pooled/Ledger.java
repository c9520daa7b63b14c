package io.esker.pooled;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Numbered writes. Those that were acknowledged stand in a log outside of the database, a line each, written after
 * the acknowledgement. A number is written once, so any that is missing later was lost.
 */
final class Ledger {
    private static final int WRITERS = 8;
    private static final int ENTRY_BYTES = 400;
    /** Numbers begin with 0. */
    private static final long NEVER = -1;

    private Ledger() {}

    /** Writes until the file {@code end} is there; the last line that is printed says how much. */
    static void write(String nodes, Path log, Path end) throws Exception {
        AtomicLong next = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        try (CqlSession session = Sessions.open(nodes, "QUORUM");
                OutputStream out = new BufferedOutputStream(Files.newOutputStream(log));
                PrintStream lines = new PrintStream(out, true)) {
            PreparedStatement insert =
                    session.prepare("INSERT INTO " + Schema.KEYSPACE + ".ledger (n, entry) VALUES (?, ?)");
            Thread[] writers = new Thread[WRITERS];
            for (int n = 0; n < WRITERS; n++) {
                writers[n] = new Thread(() -> {
                    while (!Files.exists(end)) {
                        long number = next.getAndIncrement();
                        try {
                            session.execute(insert.bind(number, entry(number)));
                            synchronized (lines) {
                                lines.println(number);
                            }
                        } catch (RuntimeException error) {
                            // It may be there, or not: nothing was promised.
                            refused.incrementAndGet();
                        }
                    }
                });
                writers[n].start();
            }
            for (Thread writer : writers) {
                writer.join();
            }
        }
        System.out.println("tried " + next + " refused " + refused);
    }

    /** Looks for every number of the log; the last line that is printed says how many are missing, or differ. */
    static void check(String nodes, Path log) throws IOException, InterruptedException {
        List<String> lines = Files.readAllLines(log);
        AtomicInteger next = new AtomicInteger();
        AtomicLong missing = new AtomicLong();
        AtomicLong wrong = new AtomicLong();
        AtomicLong looked = new AtomicLong();
        try (CqlSession session = Sessions.open(nodes, "QUORUM")) {
            PreparedStatement select =
                    session.prepare("SELECT entry FROM " + Schema.KEYSPACE + ".ledger WHERE n = ?");
            // A search that finds everything proves nothing.
            if (session.execute(select.bind(NEVER)).one() != null) {
                throw new IOException("a number is there that nobody wrote");
            }
            Thread[] readers = new Thread[WRITERS];
            for (int n = 0; n < WRITERS; n++) {
                readers[n] = new Thread(() -> {
                    for (int at = next.getAndIncrement(); at < lines.size(); at = next.getAndIncrement()) {
                        long number = Long.parseLong(lines.get(at));
                        Row row = session.execute(select.bind(number)).one();
                        looked.incrementAndGet();
                        if (row == null) {
                            missing.incrementAndGet();
                            System.err.println("missing: " + number);
                        } else if (!entry(number).equals(row.getByteBuffer("entry"))) {
                            wrong.incrementAndGet();
                            System.err.println("wrong: " + number);
                        }
                    }
                });
                readers[n].start();
            }
            for (Thread reader : readers) {
                reader.join();
            }
        }
        if (looked.get() != lines.size()) {
            // A reader that failed has said why.
            throw new IOException("looked for " + looked + " of " + lines.size() + " numbers");
        }
        System.out.println("looked " + looked + " missing " + missing + " wrong " + wrong);
    }

    /** What belongs to a number. */
    private static ByteBuffer entry(long number) {
        ByteBuffer entry = ByteBuffer.allocate(ENTRY_BYTES);
        long state = number * 0x9E3779B97F4A7C15L + 1;
        while (entry.remaining() >= Long.BYTES) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            entry.putLong(state);
        }
        entry.flip();
        return entry;
    }
}
