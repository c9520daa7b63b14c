import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ForkJoinPool;
import java.util.stream.IntStream;

/** A map of objects that is filled, changed and read at random, with garbage beside it: Work RECORDS. */
public final class Work {
    public static void main(String[] words) {
        int count = Integer.parseInt(words[0]);
        Random random = new Random(5);
        Map<Integer, byte[]> rows = new HashMap<>();
        for (int n = 0; n < count; n++) {
            byte[] row = new byte[64 + n % 128];
            row[n % row.length] = (byte) n;
            rows.put(n, row);
        }
        for (int n = 0; n < 30_000; n++) {
            int key = random.nextInt(count);
            if (random.nextInt(5) == 0) {
                rows.remove(key);
            } else {
                rows.put(key, ("again " + n).repeat(3).getBytes());
            }
        }
        TreeMap<String, Integer> ordered = new TreeMap<>();
        for (int n = 0; n < 50_000; n++) {
            ordered.put("row " + random.nextInt(1 << 30), n);
        }
        long sum = 0;
        for (Map.Entry<Integer, byte[]> row : rows.entrySet()) {
            for (byte one : row.getValue()) {
                sum = sum * 31 + one + row.getKey();
            }
        }
        long[] numbers = IntStream.range(0, 4_000_000).parallel().mapToLong(n -> n * 2654435761L % 1000003).toArray();
        java.util.Arrays.parallelSort(numbers);
        long parallel = ForkJoinPool.commonPool().submit(() -> IntStream.range(0, numbers.length).parallel()
                .mapToLong(n -> numbers[n] * (n % 7)).sum()).join();
        System.out.println(rows.size() + " " + sum + " " + ordered.firstKey() + " " + parallel);
    }
}
