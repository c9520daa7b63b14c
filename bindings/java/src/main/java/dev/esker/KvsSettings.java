package dev.esker;

/** How a KVS is made. Each call changes this object and returns it. The settings of a KVS may be changed later. */
public final class KvsSettings {
    String policy;
    String compression;
    long ttlMs;

    /** The default settings. */
    public KvsSettings() {}

    /**
     * Sets where the data goes.
     *
     * @param policy the name of a template such as {@code staging-only}, or cells such as {@code old-keys=capacity};
     *     {@code auto} by default
     * @return these settings
     */
    public KvsSettings policy(String policy) {
        this.policy = policy;
        return this;
    }

    /**
     * Sets how values are compressed.
     *
     * @param compression {@code none}, {@code lz4}, {@code zstd} or {@code auto}; {@code none} by default
     * @return these settings
     */
    public KvsSettings compression(String compression) {
        this.compression = compression;
        return this;
    }

    /**
     * Sets when values expire.
     *
     * @param ms milliseconds after they were put; 0, as by default, is never
     * @return these settings
     */
    public KvsSettings ttlMs(long ms) {
        if (ms < 0) {
            throw EskerException.invalid("a time to live of " + ms + " ms is below zero");
        }
        ttlMs = ms;
        return this;
    }
}
