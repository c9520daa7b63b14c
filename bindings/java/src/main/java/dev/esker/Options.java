package dev.esker;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Options of a KVDB, and where its classes are. Each call changes this object and returns it. A KVDB copies them when it
 * is opened; one that cannot be makes opening throw {@link EskerException.Kind#INVALID}.
 */
public final class Options {
    private Long memory;
    private long[] durability;
    private Long transactionMs;
    private Double spaceAmplification;
    private boolean manual;
    private boolean hasStaging;
    private Path staging;
    private Path capacity;
    private final Map<String, Long> tuning = new LinkedHashMap<>();

    /** The defaults: durable within 100 ms, and memory of a quarter of the machine's, at most 1 GiB. */
    public Options() {}

    /**
     * Sets the DRAM that the engine may use for everything. It is outside Java's heap.
     *
     * @param bytes at least 16 MiB
     * @return these options
     */
    public Options memory(long bytes) {
        memory = bytes;
        return this;
    }

    /**
     * Sets when acknowledged writes are durable.
     *
     * @param ms within so many milliseconds; 0 for each write before its call returns
     * @param bytes with so many bytes at most that are not durable yet; 0 for the default of 8 MiB
     * @return these options
     */
    public Options durability(long ms, long bytes) {
        durability = new long[] {natural("milliseconds", ms), natural("bytes", bytes)};
        return this;
    }

    /**
     * Sets how long a transaction may be open.
     *
     * @param ms milliseconds
     * @return these options
     */
    public Options transactionMs(long ms) {
        transactionMs = natural("milliseconds", ms);
        return this;
    }

    /**
     * Sets how many bytes the media may hold for each live byte.
     *
     * @param ratio 1.02 to 100
     * @return these options
     */
    public Options spaceAmplification(double ratio) {
        spaceAmplification = ratio;
        return this;
    }

    /**
     * Gives a new KVDB a staging class. One that is there knows its classes itself.
     *
     * @param place a raw block device, a directory, a file that is not there yet, or null for a file in the KVDB's own
     *     directory
     * @return these options
     */
    public Options staging(Path place) {
        hasStaging = true;
        staging = place;
        return this;
    }

    /**
     * Says where a new KVDB has its capacity class.
     *
     * @param place as for the staging class
     * @return these options
     */
    public Options capacity(Path place) {
        capacity = Objects.requireNonNull(place, "the place is null");
        return this;
    }

    /**
     * Has maintenance done by calls of {@link Kvdb#step} and by writes that have to wait for it.
     *
     * @param manual whether it is so, or threads of the engine do it, as by default
     * @return these options
     */
    public Options manual(boolean manual) {
        this.manual = manual;
        return this;
    }

    /**
     * Sets the size of a part of the engine, which else follows from the memory budget.
     *
     * @param name such as {@code memtable_bytes} or {@code workers}; esker.h has all
     * @param value its new size, by the name in bytes or a count
     * @return these options
     */
    public Options tuning(String name, long value) {
        tuning.put(Objects.requireNonNull(name, "the name is null"), natural(name, value));
        return this;
    }

    private static long natural(String name, long value) {
        if (value < 0) {
            throw EskerException.invalid(name + ": " + value + " is below zero");
        }
        return value;
    }

    /** A use of native options. */
    interface Use<T> {
        T with(long options);
    }

    /** Makes native options for one use; of null, none. */
    static <T> T use(Options options, Use<T> use) {
        if (options == null) {
            return use.with(0);
        }
        long made = Native.optionsNew();
        try {
            options.fill(made);
            return use.with(made);
        } finally {
            Native.optionsFree(made);
        }
    }

    private void fill(long made) {
        if (memory != null) {
            Native.optionsNumber(made, 0, natural("memory", memory), 0);
        }
        if (durability != null) {
            Native.optionsNumber(made, 1, durability[0], durability[1]);
        }
        if (transactionMs != null) {
            Native.optionsNumber(made, 2, transactionMs, 0);
        }
        if (manual) {
            Native.optionsNumber(made, 3, 1, 0);
        }
        if (spaceAmplification != null) {
            Native.optionsSpaceAmplification(made, spaceAmplification);
        }
        if (hasStaging) {
            Native.optionsClass(made, true, Bytes.path(staging));
        }
        if (capacity != null) {
            Native.optionsClass(made, false, Bytes.path(capacity));
        }
        tuning.forEach((name, value) -> Native.optionsTuning(made, Bytes.text(name), value));
    }
}
