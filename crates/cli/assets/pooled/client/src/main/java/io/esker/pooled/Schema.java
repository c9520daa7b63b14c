package io.esker.pooled;

import com.datastax.oss.driver.api.core.CqlSession;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** YCSB's table, and that of acknowledged writes. */
final class Schema {
    static final String KEYSPACE = "ycsb";
    private static final int FIELDS = 10;

    private Schema() {}

    static void create(CqlSession session, int copies, boolean compressed) {
        session.execute("CREATE KEYSPACE IF NOT EXISTS " + KEYSPACE + " WITH replication = "
                + "{'class': 'SimpleStrategy', 'replication_factor': " + copies + "}");
        String fields = IntStream.range(0, FIELDS).mapToObj(n -> "field" + n + " blob").collect(Collectors.joining(", "));
        String compression = compressed ? "{'class': 'LZ4Compressor'}" : "{'enabled': false}";
        session.execute("CREATE TABLE IF NOT EXISTS " + KEYSPACE + ".usertable (y_id varchar PRIMARY KEY, " + fields
                + ") WITH compression = " + compression);
        session.execute("CREATE TABLE IF NOT EXISTS " + KEYSPACE + ".ledger (n bigint PRIMARY KEY, entry blob)"
                + " WITH compression = " + compression);
    }
}
