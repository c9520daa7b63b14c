package io.esker.pooled;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.ConcurrentHashMap;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/**
 * Cassandra for YCSB. Properties: {@code nodes}, addresses with commas between; {@code compressible}, the share of
 * each value that a compressor can remove.
 *
 * <p>No exception leaves an operation: YCSB would end without its results.
 */
public final class CqlDatabase extends DB {
    private static final Map<String, PreparedStatement> PREPARED = new ConcurrentHashMap<>();
    private static CqlSession session;
    private static int users;
    private double compressible;

    @Override
    public void init() {
        compressible = Double.parseDouble(getProperties().getProperty("compressible", "0.5"));
        synchronized (CqlDatabase.class) {
            if (users++ == 0) {
                session = Sessions.open(getProperties().getProperty("nodes", "127.0.0.1"), "ONE");
            }
        }
    }

    @Override
    public void cleanup() {
        synchronized (CqlDatabase.class) {
            if (--users == 0) {
                session.close();
                PREPARED.clear();
            }
        }
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        try {
            String columns = fields == null ? "*" : String.join(", ", fields);
            String query = "SELECT " + columns + " FROM " + Schema.KEYSPACE + "." + table + " WHERE y_id = ?";
            Row row = session.execute(prepared(query).bind(key)).one();
            if (row == null) {
                return Status.NOT_FOUND;
            }
            row.getColumnDefinitions().forEach(column -> take(row, column.getName().asInternal(), result));
            return Status.OK;
        } catch (RuntimeException error) {
            return failed(error);
        }
    }

    private static void take(Row row, String column, Map<String, ByteIterator> result) {
        ByteBuffer value = row.getBytesUnsafe(column);
        if (value != null) {
            byte[] bytes = new byte[value.remaining()];
            value.get(bytes);
            result.put(column, new ByteArrayByteIterator(bytes));
        }
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return write(table, key, values);
    }

    /** To Cassandra an update is an insert. */
    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        return write(table, key, values);
    }

    private Status write(String table, String key, Map<String, ByteIterator> values) {
        try {
            List<Object> bound = new ArrayList<>(values.size() + 1);
            bound.add(key);
            values.values().forEach(value -> bound.add(Values.compressible(value.toArray(), compressible)));
            String columns = String.join(", ", values.keySet());
            String query = "INSERT INTO " + Schema.KEYSPACE + "." + table + " (y_id, " + columns + ") VALUES (?"
                    + ", ?".repeat(values.size()) + ")";
            session.execute(prepared(query).bind(bound.toArray()));
            return Status.OK;
        } catch (RuntimeException error) {
            return failed(error);
        }
    }

    @Override
    public Status delete(String table, String key) {
        try {
            String query = "DELETE FROM " + Schema.KEYSPACE + "." + table + " WHERE y_id = ?";
            session.execute(prepared(query).bind(key));
            return Status.OK;
        } catch (RuntimeException error) {
            return failed(error);
        }
    }

    /** Rows of Cassandra lie in the order of hashes of their keys, so a range of keys is no scan. */
    @Override
    public Status scan(
            String table, String key, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
        return Status.NOT_IMPLEMENTED;
    }

    private static PreparedStatement prepared(String query) {
        return PREPARED.computeIfAbsent(query, session::prepare);
    }

    private static Status failed(RuntimeException error) {
        System.err.println("failed: " + error);
        return Status.ERROR;
    }
}
