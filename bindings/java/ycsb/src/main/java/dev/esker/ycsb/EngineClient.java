package dev.esker.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/** A client of YCSB over a store of bytes. YCSB makes one for each thread; all of them share one store, which is counted. */
abstract class EngineClient extends DB {
    /** A store of keys and values. */
    interface Store extends AutoCloseable {
        byte[] get(byte[] key) throws Exception;

        void put(byte[] key, byte[] value) throws Exception;

        void delete(byte[] key) throws Exception;

        List<byte[]> scan(byte[] from, int count) throws Exception;

        /** Puts the value under each key, in one atomic batch. */
        void putAll(List<byte[]> keys, byte[] value) throws Exception;

        /** Waits until no maintenance is due. */
        void settle() throws Exception;
    }

    private static Store shared;
    private static int clients;
    private Store store;

    abstract Store open(Properties properties) throws Exception;

    @Override
    public void init() throws DBException {
        synchronized (EngineClient.class) {
            try {
                if (shared == null) {
                    shared = open(getProperties());
                }
                clients++;
                store = shared;
            } catch (Exception error) {
                throw new DBException(error);
            }
        }
    }

    @Override
    public void cleanup() throws DBException {
        synchronized (EngineClient.class) {
            if (--clients == 0) {
                try {
                    shared.close();
                } catch (Exception error) {
                    throw new DBException(error);
                } finally {
                    shared = null;
                }
            }
        }
    }

    private interface Work {
        Status run() throws Exception;
    }

    private static Status tried(Work work) {
        try {
            return work.run();
        } catch (Exception error) {
            System.err.println(error);
            return Status.ERROR;
        }
    }

    private static byte[] key(String key) {
        return key.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        return tried(() -> {
            byte[] value = store.get(key(key));
            if (value == null) {
                return Status.NOT_FOUND;
            }
            Fields.unpack(value, fields, result);
            return Status.OK;
        });
    }

    @Override
    public Status scan(String table, String start, int count, Set<String> fields,
            Vector<HashMap<String, ByteIterator>> result) {
        return tried(() -> {
            for (byte[] value : store.scan(key(start), count)) {
                HashMap<String, ByteIterator> row = new HashMap<>();
                Fields.unpack(value, fields, row);
                result.add(row);
            }
            return Status.OK;
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        return tried(() -> {
            byte[] name = key(key);
            byte[] old = store.get(name);
            if (old == null) {
                return Status.NOT_FOUND;
            }
            Map<String, ByteIterator> all = new HashMap<>();
            Fields.unpack(old, null, all);
            all.putAll(values);
            store.put(name, Fields.pack(all));
            return Status.OK;
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return tried(() -> {
            store.put(key(key), Fields.pack(values));
            return Status.OK;
        });
    }

    @Override
    public Status delete(String table, String key) {
        return tried(() -> {
            store.delete(key(key));
            return Status.OK;
        });
    }
}
