package dev.esker;

/**
 * All KVSs of a KVDB as they were when the snapshot was made, used by any number of threads. While it is open, the KVDB
 * keeps the data that it may read: close it.
 */
public final class Snapshot extends Reader implements AutoCloseable {
    Snapshot(Kvdb db, long pointer) {
        super(db, Handle.SNAPSHOT, pointer, Reads.OF_SNAPSHOT);
    }

    /** Lets go of the data. Does nothing when it is closed already. */
    @Override
    public void close() {
        handle.close();
    }
}
