package dev.esker;

/** The result of a check of a KVDB. */
public final class Check {
    private final boolean sound;
    private final String report;

    Check(boolean sound, String report) {
        this.sound = sound;
        this.report = report;
    }

    /**
     * Whether nothing was found.
     *
     * @return true of a sound KVDB
     */
    public boolean isSound() {
        return sound;
    }

    /**
     * The report of everything that was read, with damage in {@code findings}.
     *
     * @return JSON
     */
    public String report() {
        return report;
    }
}
