package io.esker.pooled;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Values that a compressor can make smaller, by a share that is said. */
final class Values {
    private static final byte FILLER = 'x';

    private Values() {}

    /** A value of the same length: its first bytes as they are, the share behind them one byte over and over. */
    static ByteBuffer compressible(byte[] random, double share) {
        int kept = (int) Math.round(random.length * (1 - share));
        Arrays.fill(random, kept, random.length, FILLER);
        return ByteBuffer.wrap(random);
    }
}
