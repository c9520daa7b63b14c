package io.esker.pooled;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.HdrHistogram.EncodableHistogram;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogReader;

/**
 * Sums the histograms that YCSB has logged each second, from a second of a run on and for some seconds, and prints them
 * as YCSB prints its own. Directories below the one that is named are nodes or repetitions: their histograms are added.
 */
final class Figures {
    private static final double[] PERCENTILES = {50, 95, 99, 99.9};

    private Figures() {}

    static void print(Path root, double first, double seconds) throws IOException {
        List<Path> logs;
        try (Stream<Path> all = Files.walk(root)) {
            logs = all.filter(path -> path.toString().endsWith(".hdr")).sorted().toList();
        }
        Map<String, Histogram> sums = new TreeMap<>();
        double longest = 0;
        for (Path log : logs) {
            String name = log.getFileName().toString().replace(".hdr", "");
            Histogram sum = sums.computeIfAbsent(name, unused -> new Histogram(3));
            longest = Math.max(longest, add(log, first, first + seconds, sum));
        }
        System.out.printf(Locale.ROOT, "[OVERALL], RunTime(ms), %.0f%n", 1000 * longest);
        sums.forEach(Figures::print);
    }

    /** Adds what a log has, and says how many seconds that took. */
    private static double add(Path log, double first, double end, Histogram sum) throws IOException {
        double began = Double.NaN;
        double from = Double.NaN;
        double until = Double.NaN;
        HistogramLogReader reader = new HistogramLogReader(log.toFile());
        for (EncodableHistogram next = reader.nextIntervalHistogram();
                next != null;
                next = reader.nextIntervalHistogram()) {
            double start = next.getStartTimeStamp() / 1000.0;
            began = Double.isNaN(began) ? start : began;
            if (start - began >= first && start - began < end) {
                sum.add((Histogram) next);
                from = Double.isNaN(from) ? start : from;
                until = next.getEndTimeStamp() / 1000.0;
            }
        }
        return Double.isNaN(from) ? 0 : until - from;
    }

    private static void print(String name, Histogram sum) {
        System.out.printf(Locale.ROOT, "[%s], Operations, %d%n", name, sum.getTotalCount());
        System.out.printf(Locale.ROOT, "[%s], AverageLatency(us), %.1f%n", name, sum.getMean());
        for (double one : PERCENTILES) {
            System.out.printf(
                    Locale.ROOT, "[%s], %sthPercentileLatency(us), %d%n", name, shown(one), sum.getValueAtPercentile(one));
        }
        System.out.printf(Locale.ROOT, "[%s], MaxLatency(us), %d%n", name, sum.getMaxValue());
    }

    private static String shown(double percentile) {
        return percentile == Math.rint(percentile) ? String.valueOf((long) percentile) : String.valueOf(percentile);
    }
}
