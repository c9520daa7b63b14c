package dev.esker;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * An open KVDB, used by any number of threads. {@link #close} makes all writes durable, and ends what belongs to it: calls
 * of its KVSs, iterators, snapshots and transactions throw {@link EskerException.Kind#CLOSED} then, in other threads too.
 *
 * <p>Without a close, no acknowledged write is lost when the virtual machine exits or is killed. The collector closes a
 * KVDB that nothing refers to.
 */
public final class Kvdb implements AutoCloseable {
    final Handle handle;
    private final Object closing = new Object();
    private boolean closed;

    /** How a KVDB is opened. */
    public enum Mode {
        /** Opens it, or makes it where there is none. */
        OPEN_OR_CREATE,
        /** Opens it. */
        OPEN,
        /** Makes it. */
        CREATE,
        /** Opens it to read: several processes may, as long as nobody has it open to write. */
        READ_ONLY
    }

    private Kvdb(long pointer) {
        handle = new Handle(Handle.DB, pointer, null);
        handle.ownedBy(this);
    }

    /**
     * Opens the KVDB in a directory, or makes it where there is none, with the default options.
     *
     * @param dir the directory
     * @return the KVDB, which the caller closes
     * @throws EskerException if it is in use ({@link EskerException.Kind#IN_USE}), damaged, or cannot be opened
     */
    public static Kvdb open(Path dir) {
        return open(dir, Mode.OPEN_OR_CREATE, null);
    }

    /**
     * Opens the KVDB in a directory.
     *
     * @param dir the directory
     * @param mode how
     * @param options options, or null for the defaults
     * @return the KVDB, which the caller closes
     * @throws EskerException if it is in use ({@link EskerException.Kind#IN_USE}), not there, there already, damaged, or
     *     cannot be opened, or an option cannot be
     */
    public static Kvdb open(Path dir, Mode mode, Options options) {
        byte[] path = directory(dir);
        Objects.requireNonNull(mode, "the mode is null");
        return new Kvdb(Options.use(options, made -> Native.open(mode.ordinal(), path, made)));
    }

    private static byte[] directory(Path dir) {
        return Bytes.path(Objects.requireNonNull(dir, "the directory is null"));
    }

    /** A call with a live handle. */
    interface Call<T> {
        T with(long pointer);
    }

    static <T> T use(Object owner, Handle handle, Call<T> call) {
        long pointer = handle.enter();
        try {
            return call.with(pointer);
        } finally {
            handle.exit();
            Reference.reachabilityFence(owner);
        }
    }

    private <T> T use(Call<T> call) {
        return use(this, handle, call);
    }

    private void run(int what) {
        use(pointer -> {
            Native.run(what, pointer);
            return null;
        });
    }

    private Kvs kvs(int mode, String name, KvsSettings settings) {
        byte[] text = Bytes.text(Objects.requireNonNull(name, "the name is null"));
        KvsSettings how = settings == null ? new KvsSettings() : settings;
        byte[] policy = Bytes.text(how.policy), compression = Bytes.text(how.compression);
        return use(pointer -> new Kvs(this, name, Native.kvs(pointer, mode, text, policy, compression, how.ttlMs)));
    }

    /**
     * The KVS of a name.
     *
     * @param name its name
     * @return the KVS
     * @throws EskerException if there is none ({@link EskerException.Kind#NOT_FOUND}), or the KVDB is closed
     */
    public Kvs kvs(String name) {
        return kvs(1, name, null);
    }

    /**
     * The KVS of a name, which is created where there is none.
     *
     * @param name its name, of at most 255 bytes
     * @return the KVS
     * @throws EskerException if it is closed, or cannot be created
     */
    public Kvs kvsOrCreate(String name) {
        return kvs(0, name, null);
    }

    /**
     * The KVS of a name, which is created with these settings where there is none. One that is there keeps its own.
     *
     * @param name its name, of at most 255 bytes
     * @param settings its settings, or null for the defaults
     * @return the KVS
     * @throws EskerException if it is closed, or cannot be created
     */
    public Kvs kvsOrCreate(String name, KvsSettings settings) {
        return kvs(0, name, settings);
    }

    /**
     * Creates a KVS.
     *
     * @param name its name, of at most 255 bytes
     * @param settings its settings, or null for the defaults
     * @return the KVS
     * @throws EskerException if there is one ({@link EskerException.Kind#EXISTS}), it is closed, or cannot be created
     */
    public Kvs createKvs(String name, KvsSettings settings) {
        return kvs(2, name, settings);
    }

    /**
     * Drops a KVS with all it holds.
     *
     * @param name its name
     * @throws EskerException if there is none ({@link EskerException.Kind#NOT_FOUND}), or the KVDB is closed
     */
    public void dropKvs(String name) {
        byte[] text = Bytes.text(Objects.requireNonNull(name, "the name is null"));
        use(pointer -> {
            Native.drop(pointer, text);
            return null;
        });
    }

    /**
     * The names of all KVSs, in the order of their creation.
     *
     * @return the names
     * @throws EskerException if it is closed
     */
    public List<String> kvsNames() {
        return texts(0);
    }

    /**
     * Remarks about how devices were opened, about damage, and about readers that keep much space.
     *
     * @return the remarks
     * @throws EskerException if it is closed
     */
    public List<String> remarks() {
        return texts(1);
    }

    private List<String> texts(int what) {
        byte[] all = use(pointer -> Native.texts(what, pointer));
        List<String> texts = new ArrayList<>();
        for (int from = 0, at = 0; at < all.length; at++) {
            if (all[at] == 0) {
                texts.add(new String(all, from, at - from, StandardCharsets.UTF_8));
                from = at + 1;
            }
        }
        return texts;
    }

    /**
     * Writes a batch: all of it or nothing, now and after a crash.
     *
     * @param batch the batch
     * @throws EskerException if it is closed, a KVS is another KVDB's, or the write fails
     */
    public void write(Batch batch) {
        write(batch, false);
    }

    /**
     * Writes a batch: all of it or nothing, now and after a crash.
     *
     * @param batch the batch
     * @param durable whether it is durable when the call returns
     * @throws EskerException if it is closed, a KVS is another KVDB's, or the write fails
     */
    public void write(Batch batch, boolean durable) {
        Objects.requireNonNull(batch, "the batch is null");
        use(pointer -> {
            batch.write(pointer, durable);
            return null;
        });
    }

    /**
     * Makes everything written so far durable.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void sync() {
        run(1);
    }

    /**
     * Makes a snapshot of all KVSs.
     *
     * @return the snapshot, which the caller closes
     * @throws EskerException if it is closed
     */
    public Snapshot snapshot() {
        return use(pointer -> new Snapshot(this, Native.snapshot(pointer)));
    }

    /**
     * Begins a transaction.
     *
     * @return the transaction, which the caller closes
     * @throws EskerException if it is closed or read-only
     */
    public Transaction begin() {
        return use(pointer -> new Transaction(this, Native.begin(pointer)));
    }

    /**
     * Statistics. {@code version} is the number of their form, 1; fields may be added to it.
     *
     * @return JSON
     * @throws EskerException if it is closed
     */
    public String stats() {
        return Bytes.string(use(pointer -> Native.text(0, pointer)));
    }

    /**
     * The version of the on-media format of the KVDB.
     *
     * @return the version
     * @throws EskerException if it is closed
     */
    public int formatVersion() {
        return use(Native::formatVersion);
    }

    /**
     * Copies the KVDB to a new one, while reads and writes go on.
     *
     * @param to the directory of the copy
     * @param options where the classes of the copy are, or null for its own directory
     * @return a report, JSON
     * @throws EskerException if there is something, it is closed, or a read or write fails
     */
    public String backup(Path to, Options options) {
        byte[] path = directory(to);
        return Bytes.string(Options.use(options, made -> use(pointer -> Native.backup(pointer, path, made))));
    }

    /**
     * Merges everything while the KVDB is in use, so that no garbage is left.
     *
     * @return how it ended, JSON
     * @throws EskerException if it is called off ({@link EskerException.Kind#CANCELLED}), the KVDB is closed, or it fails
     */
    public String compact() {
        return compact(0, 0);
    }

    /**
     * Merges until the media hold at most so many bytes for each live byte.
     *
     * @param goal at least 1.02
     * @return how it ended, JSON
     * @throws EskerException as {@link #compact}
     */
    public String compactTo(double goal) {
        return compact(1, goal);
    }

    /**
     * Merges everything; then nothing that was deleted before is on the media.
     *
     * @return how it ended, JSON
     * @throws EskerException as {@link #compact}
     */
    public String scrub() {
        return compact(2, 0);
    }

    private String compact(int request, double goal) {
        return Bytes.string(use(pointer -> Native.compact(pointer, request, goal)));
    }

    /**
     * How a compaction, or the removal of a class, is getting on.
     *
     * @return JSON
     * @throws EskerException if it is closed
     */
    public String compactStatus() {
        return Bytes.string(use(pointer -> Native.text(1, pointer)));
    }

    /**
     * Calls off the compaction, or the removal of a class, that is under way. It ends soon; its work so far stays.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void cancelCompact() {
        run(4);
    }

    /**
     * Turns the memtable into kvsets now, full or not.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void ingest() {
        run(2);
    }

    /**
     * Runs or waits for maintenance until nothing is due.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void settle() {
        run(3);
    }

    /**
     * Runs one step of maintenance that is due, for {@link Options#manual}.
     *
     * @return whether there was one
     * @throws EskerException if it is closed, or that fails
     */
    public boolean step() {
        return use(Native::step);
    }

    /**
     * Upgrades the KVDB to the newest version of the on-media format, durably. There is no way back.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void upgrade() {
        run(5);
    }

    /**
     * Gives the KVDB a staging class while it runs.
     *
     * @param place a raw block device, a directory, a file that is not there yet, or null for a file in the KVDB's own
     *     directory
     * @throws EskerException if it is closed, has one, or the place cannot be
     */
    public void addStaging(Path place) {
        byte[] path = Bytes.path(place);
        use(pointer -> {
            Native.addStaging(pointer, path);
            return null;
        });
    }

    /**
     * Takes the staging class away while the KVDB is in use, after its data has been moved to capacity.
     *
     * @throws EskerException if it is closed, or that fails
     */
    public void removeStaging() {
        run(6);
    }

    /**
     * Makes all writes durable, and closes the KVDB with what belongs to it. Does nothing when it is closed already.
     *
     * @throws EskerException if something written is not durable; it is closed all the same
     */
    @Override
    public void close() {
        synchronized (closing) {
            if (closed) {
                return;
            }
            closed = true;
            try {
                run(0);
            } finally {
                handle.close();
            }
        }
    }

    /**
     * Verifies a KVDB that nobody has open to write, without changing it. Damage is in the report, and no exception.
     *
     * @param dir its directory
     * @param options where its classes are, or null
     * @return the result
     * @throws EskerException if there is none, it is in use, or cannot be read
     */
    public static Check check(Path dir, Options options) {
        byte[] path = directory(dir);
        boolean[] sound = new boolean[1];
        byte[] report = Options.use(options, made -> Native.check(path, made, sound));
        return new Check(sound[0], Bytes.string(report));
    }

    /**
     * Salvages what is sound of a damaged KVDB, which nobody has open, to a new one.
     *
     * @param damaged its directory
     * @param to the directory of the new one
     * @param options where the classes of the damaged one are, or null
     * @param toOptions where those of the new one are, or null
     * @return a report, JSON
     * @throws EskerException if there is none, it is in use, or a read or write fails
     */
    public static String repair(Path damaged, Path to, Options options, Options toOptions) {
        byte[] path = directory(damaged), toPath = directory(to);
        return Bytes.string(Options.use(options,
                made -> Options.use(toOptions, toMade -> Native.repair(path, made, toPath, toMade))));
    }

    /**
     * Removes a KVDB with all it holds.
     *
     * @param dir its directory
     * @param options where its classes are, or null
     * @throws EskerException if there is none, it is in use, or cannot be removed
     */
    public static void destroy(Path dir, Options options) {
        byte[] path = directory(dir);
        Options.use(options, made -> {
            Native.destroy(path, made);
            return null;
        });
    }

    /**
     * The version of the engine.
     *
     * @return such as {@code 0.1.0}
     */
    public static String version() {
        return Bytes.string(Native.version());
    }
}
