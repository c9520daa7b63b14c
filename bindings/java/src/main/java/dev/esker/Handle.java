package dev.esker;

import java.lang.ref.Cleaner;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * A native handle with the calls that use it. It is freed once: when it is closed, and the last call has ended. Threads
 * count in stripes of their own where many use one handle.
 *
 * <p>Never refers to the public object that has it, so that the collector may close what nobody closed.
 */
final class Handle implements Runnable {
    static final int DB = 0, KVS = 1, SNAPSHOT = 2, TRANSACTION = 3, ROWS = 4;

    private static final Cleaner CLEANER = Cleaner.create();
    /** Numbers of a line of the processor's cache. */
    private static final int LINE = 16;
    private static final String[] NAMES = {"KVDB", "KVS", "snapshot", "transaction", "iterator"};

    private final int kind;
    private final long pointer;
    private final AtomicIntegerArray uses;
    private final int mask;
    /** Handles of the same KVDB, which its closing closes; among them this one, unless it is the KVDB's. */
    private final Set<Handle> family;
    private volatile boolean closed;
    private boolean freed;
    private volatile Cleaner.Cleanable cleanable;

    /** A handle of a KVDB, or of what belongs to the one given. */
    Handle(int kind, long pointer, Handle db) {
        this.kind = kind;
        this.pointer = pointer;
        mask = kind == KVS || kind == DB ? 7 : 0;
        uses = new AtomicIntegerArray((mask + 2) * LINE);
        family = db == null ? ConcurrentHashMap.newKeySet() : db.family;
        if (db != null) {
            family.add(this);
            // A KVDB that closed meanwhile may have missed it.
            if (db.closed) {
                close();
            }
        }
    }

    /** Has the handle closed when nothing refers to the public object any more. */
    void ownedBy(Object owner) {
        cleanable = CLEANER.register(owner, this);
    }

    private int stripe() {
        return mask == 0 ? LINE : (((int) Thread.currentThread().getId() & mask) + 1) * LINE;
    }

    /** Begins a call, which has to end it, and returns the handle. */
    long enter() {
        uses.getAndIncrement(stripe());
        if (closed) {
            exit();
            throw closedException();
        }
        return pointer;
    }

    /** Ends a call of this thread. */
    void exit() {
        uses.getAndDecrement(stripe());
        if (closed) {
            freeUnused();
        }
    }

    void checkOpen() {
        if (closed) {
            throw closedException();
        }
    }

    private EskerException closedException() {
        return new EskerException(EskerException.Kind.CLOSED, 0, "the " + NAMES[kind] + " is closed, or its KVDB is");
    }

    /** Frees the handle: now, or at the end of the last call that uses it. */
    void close() {
        closed = true;
        Cleaner.Cleanable registered = cleanable;
        if (registered != null) {
            // It runs at once, by way of this object, and never again.
            registered.clean();
        }
        freeUnused();
    }

    private void freeUnused() {
        synchronized (this) {
            if (freed) {
                return;
            }
            for (int stripe = 0; stripe <= mask; stripe++) {
                if (uses.get((stripe + 1) * LINE) != 0) {
                    return;
                }
            }
            freed = true;
        }
        family.remove(this);
        Native.free(kind, pointer);
    }

    @Override
    public void run() {
        closed = true;
        if (kind == DB) {
            family.forEach(Handle::close);
        }
        freeUnused();
    }
}
