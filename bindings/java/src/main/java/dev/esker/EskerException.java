package dev.esker;

import java.nio.charset.StandardCharsets;

/** A failure of the engine. The message says what happened, to which file or key, and what to do. */
public final class EskerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Kinds of failures, by the stable numbers of the engine. */
    public enum Kind {
        /** A device or file system failed; {@link EskerException#systemError} has the system's error number. */
        IO(1),
        /** The KVDB, KVS, file or device named is not there. */
        NOT_FOUND(2),
        /** It is there already. */
        EXISTS(3),
        /** An argument, a key, a value, a batch, a name, an option or a place cannot be. */
        INVALID(4),
        /** This build, device or file system cannot do it. */
        UNSUPPORTED(5),
        /** A class or its file system is full. */
        NO_SPACE(6),
        /** A medium returned other data than was written. */
        DAMAGED(7),
        /** The KVDB, or these keys of it, take no writes. */
        READ_ONLY(8),
        /** Someone else wrote a key of the transaction since it began: begin it again. */
        TRANSACTION_CONFLICT(9),
        /** The transaction was open for too long: begin it again. */
        TRANSACTION_EXPIRED(10),
        /** Work, readers, or another thread with this object have to end first: try again then. */
        BUSY(11),
        /** Another process, or another opening in this one, has the KVDB or a device of it. */
        IN_USE(12),
        /** The work was called off. */
        CANCELLED(13),
        /** The KVDB, iterator, snapshot or transaction is closed, or the KVS dropped. */
        CLOSED(14),
        /** An earlier failure stopped writes: open the KVDB again. */
        STOPPED(15),
        /** A bug of Esker or of a device. */
        PANICKED(16),
        /** The file or device of a class is gone. A new KVDB is no remedy. */
        CLASS_MISSING(17);

        private final int code;

        Kind(int code) {
            this.code = code;
        }

        /**
         * The number of this kind, the same in all languages.
         *
         * @return the number, from 1
         */
        public int code() {
            return code;
        }
    }

    private static final Kind[] KINDS = Kind.values();

    /** The kind of the failure. */
    private final Kind kind;
    /** The system's error number, or 0. */
    private final int system;

    EskerException(Kind kind, int system, String message) {
        super(message);
        this.kind = kind;
        this.system = system;
    }

    /** Native code makes its exceptions here. */
    static EskerException of(int code, int system, byte[] message) {
        Kind kind = code >= 1 && code <= KINDS.length ? KINDS[code - 1] : Kind.PANICKED;
        return new EskerException(kind, system, new String(message, StandardCharsets.UTF_8));
    }

    static EskerException invalid(String message) {
        return new EskerException(Kind.INVALID, 0, message);
    }

    /**
     * The kind of the failure.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * The system's error number ({@code errno}) behind the failure.
     *
     * @return the number, or 0 where there is none
     */
    public int systemError() {
        return system;
    }

    /**
     * Whether the transaction may succeed when it begins again.
     *
     * @return true of conflicts and expired transactions
     */
    public boolean isRetryable() {
        return kind == Kind.TRANSACTION_CONFLICT || kind == Kind.TRANSACTION_EXPIRED;
    }
}
