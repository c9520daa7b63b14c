package dev.esker;

/**
 * Which keys an iterator has, and in which order. Each call changes this object and returns it; an iterator copies it.
 * Without calls it is all keys, upwards, with their values. Bounds and a prefix exclude each other.
 */
public final class Range {
    byte[] lower;
    byte[] upper;
    int lowerKind;
    int upperKind;
    byte[] prefix;
    boolean reverse;
    boolean keysOnly;
    long limit = Long.MAX_VALUE;

    /** All keys. */
    public Range() {}

    /**
     * Begins at a key.
     *
     * @param key the least key of the range
     * @return this range
     */
    public Range from(byte[] key) {
        lower = Bytes.key(key).clone();
        lowerKind = 1;
        return this;
    }

    /**
     * Begins after a key.
     *
     * @param key less than all keys of the range
     * @return this range
     */
    public Range after(byte[] key) {
        from(key);
        lowerKind = 2;
        return this;
    }

    /**
     * Ends before a key.
     *
     * @param key greater than all keys of the range
     * @return this range
     */
    public Range to(byte[] key) {
        through(key);
        upperKind = 2;
        return this;
    }

    /**
     * Ends with a key.
     *
     * @param key the greatest key of the range
     * @return this range
     */
    public Range through(byte[] key) {
        upper = Bytes.key(key).clone();
        upperKind = 1;
        return this;
    }

    /**
     * Has the keys that begin with these bytes.
     *
     * @param bytes at least one
     * @return this range
     */
    public Range prefix(byte[] bytes) {
        prefix = Bytes.key(bytes).clone();
        return this;
    }

    /**
     * Walks downwards, from the greatest key to the least.
     *
     * @return this range
     */
    public Range reverse() {
        reverse = true;
        return this;
    }

    /**
     * Leaves values unread: they come out empty.
     *
     * @return this range
     */
    public Range keysOnly() {
        keysOnly = true;
        return this;
    }

    /**
     * Ends after so many rows. No more than these are read ahead.
     *
     * @param rows how many
     * @return this range
     */
    public Range limit(long rows) {
        if (rows < 0) {
            throw EskerException.invalid("a limit of " + rows + " rows is below zero");
        }
        limit = rows;
        return this;
    }
}
