import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

/** A cache that forgets what was used least recently, read and written at random: Cache ENTRIES OPERATIONS. */
public final class Cache {
    private static final int LEAST_BYTES = 600;

    private static byte[] row(int key, int version) {
        byte[] row = new byte[LEAST_BYTES + key % 400];
        new Random(key * 31L + version).nextBytes(row);
        return row;
    }

    public static void main(String[] words) {
        int entries = Integer.parseInt(words[0]);
        int operations = Integer.parseInt(words[1]);
        Map<Integer, byte[]> cache = new LinkedHashMap<>(2 * entries, 0.75f, true) {
            @Override
            protected boolean removeEldestEntry(Map.Entry<Integer, byte[]> eldest) {
                return size() > entries;
            }
        };
        for (int key = 0; key < entries; key++) {
            cache.put(key, row(key, 0));
        }
        Random random = new Random(5);
        long sum = 0;
        int hits = 0;
        for (int n = 0; n < operations; n++) {
            // Most accesses are to a tenth of the keys.
            int range = random.nextInt(10) == 0 ? entries * 11 / 10 : entries / 10;
            int key = random.nextInt(range);
            byte[] row = cache.get(key);
            if (row == null || random.nextInt(20) == 0) {
                cache.put(key, row(key, n));
            } else {
                hits++;
                sum = sum * 31 + row[n % row.length] + row[row.length - 1];
            }
        }
        System.out.println(cache.size() + " " + hits + " " + sum);
    }
}
