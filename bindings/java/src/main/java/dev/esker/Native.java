package dev.esker;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** The calls of the native library, and how it is found. Handles are live: {@link Handle} sees to it. */
final class Native {
    /** The system property that names a library to load instead of the one in the jar. */
    private static final String LIBRARY = "dev.esker.library";

    static {
        load();
    }

    private Native() {}

    private static void load() {
        String given = System.getProperty(LIBRARY);
        if (given != null) {
            System.load(Path.of(given).toAbsolutePath().toString());
            return;
        }
        String architecture = System.getProperty("os.arch").equals("amd64") ? "x86_64" : System.getProperty("os.arch");
        String system = System.getProperty("os.name").toLowerCase(java.util.Locale.ROOT);
        String name = "native/" + system + "-" + architecture + "/libesker_jni.so";
        try (InputStream library = Native.class.getResourceAsStream(name)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("the jar of Esker has no " + name
                        + ": build it on this machine with bindings/java/build, or name a library in -D" + LIBRARY);
            }
            // Only this user may read the file, and nobody finds it once it is loaded.
            Path copy = Files.createTempFile("esker-", ".so");
            try {
                Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
                System.load(copy.toString());
            } finally {
                Files.deleteIfExists(copy);
            }
        } catch (IOException error) {
            throw linkError("the native library of Esker cannot be unpacked to " + System.getProperty("java.io.tmpdir")
                    + ": name another directory in -Djava.io.tmpdir, or a library in -D" + LIBRARY, error);
        } catch (UnsatisfiedLinkError error) {
            if (error.getMessage().startsWith("the jar")) {
                throw error;
            }
            throw linkError("the native library of Esker cannot be loaded (" + error.getMessage()
                    + "): it needs glibc, and a directory in -Djava.io.tmpdir from which programs may run", error);
        }
    }

    private static UnsatisfiedLinkError linkError(String message, Throwable cause) {
        UnsatisfiedLinkError error = new UnsatisfiedLinkError(message);
        error.initCause(cause);
        return error;
    }

    static native long optionsNew();

    static native void optionsFree(long options);

    static native void optionsNumber(long options, int what, long one, long two);

    static native void optionsSpaceAmplification(long options, double ratio);

    static native void optionsClass(long options, boolean staging, byte[] place);

    static native void optionsTuning(long options, byte[] name, long value);

    static native long open(int mode, byte[] dir, long options);

    static native void run(int what, long db);

    static native boolean step(long db);

    static native int formatVersion(long db);

    static native void addStaging(long db, byte[] place);

    static native byte[] text(int what, long handle);

    static native byte[] texts(int what, long db);

    static native byte[] compact(long db, int request, double goal);

    static native byte[] backup(long db, byte[] to, long options);

    static native byte[] check(byte[] dir, long options, boolean[] sound);

    static native byte[] repair(byte[] damaged, long options, byte[] to, long toOptions);

    static native void destroy(byte[] dir, long options);

    static native long kvs(long db, int mode, byte[] name, byte[] policy, byte[] compression, long ttlMs);

    static native void drop(long db, byte[] name);

    static native void setText(long kvs, boolean policy, byte[] value);

    static native void setTtl(long kvs, long ms);

    static native void setMetadata(long kvs, byte[] metadata);

    static native void put(long txn, long kvs, byte[] key, ByteBuffer keyBuffer, int keyAt, int keySize,
            byte[] value, ByteBuffer valueBuffer, int valueAt, int valueSize, int flags);

    static native void delete(int what, long txn, long kvs, byte[] one, byte[] other);

    static native boolean compareAndSet(long kvs, byte[] key, byte[] oldValue, byte[] newValue);

    static native void write(long db, long[] kvss, byte[] packed, int size, int flags);

    static native byte[] get(int of, long reader, long kvs, byte[] key, ByteBuffer keyBuffer, int keyAt, int keySize);

    static native int getInto(int of, long reader, long kvs, byte[] key, ByteBuffer keyBuffer, int keyAt, int keySize,
            byte[] into, ByteBuffer intoBuffer, int intoAt, int intoSize);

    static native byte[] getMany(int of, long reader, long kvs, byte[] packed, int count);

    static native boolean contains(int of, long reader, long kvs, byte[] key);

    static native long snapshot(long db);

    static native long begin(long db);

    static native void commit(long txn, int flags);

    static native long iterate(int of, long reader, long kvs, int lowerKind, byte[] lower, int upperKind, byte[] upper,
            byte[] prefix, boolean keysOnly, boolean atEnd, long expected);

    static native void seek(long rows, byte[] key);

    static native byte[] rows(long rows, boolean reverse, int most, int bytesWanted);

    static native void free(int what, long handle);

    static native byte[] version();

    /** Only in a library that was built with {@code ESKER_MEASURE=1}: nanoseconds of an operation in Rust. */
    static native long measure(long kvs, byte[] operation, byte[] keys, int count);
}
