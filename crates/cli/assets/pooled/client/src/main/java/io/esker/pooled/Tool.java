package io.esker.pooled;

import com.datastax.oss.driver.api.core.CqlSession;
import java.nio.file.Path;

/** What the study does beside YCSB: {@code schema}, {@code settle}, {@code figures}, {@code write}, {@code check}. */
public final class Tool {
    /** How often in a row a node has nothing to do before it is at rest. */
    private static final int AT_REST = 4;

    private Tool() {}

    /** Runs one of them; its arguments follow its name. */
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "schema" -> {
                try (CqlSession session = Sessions.open(args[1], "ALL")) {
                    Schema.create(session, Integer.parseInt(args[2]), Boolean.parseBoolean(args[3]));
                }
            }
            case "settle" -> {
                try (CqlSession session = Sessions.open(args[1], "ONE")) {
                    settle(session, Long.parseLong(args[2]));
                }
            }
            case "figures" -> 
                    Figures.print(Path.of(args[1]), Double.parseDouble(args[2]), Double.parseDouble(args[3]));
            case "write" -> Ledger.write(args[1], Path.of(args[2]), Path.of(args[3]));
            case "check" -> Ledger.check(args[1], Path.of(args[2]));
            default -> throw new IllegalArgumentException("no tool " + args[0]);
        }
    }

    /** Waits until a node compacts nothing, at most so many seconds. */
    private static void settle(CqlSession session, long seconds) throws InterruptedException {
        int quiet = 0;
        for (long n = 0; n < 2 * seconds && quiet < AT_REST; n++) {
            Thread.sleep(500);
            boolean works = session.execute("SELECT task_id FROM system_views.sstable_tasks").one() != null;
            quiet = works ? 0 : quiet + 1;
        }
        System.out.println(quiet == AT_REST ? "at rest" : "busy still");
    }
}
