package dev.esker.ycsb;

import dev.esker.Batch;
import dev.esker.Kvdb;
import dev.esker.Kvs;
import dev.esker.Options;
import dev.esker.Range;
import dev.esker.RowIterator;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/** YCSB on Esker: {@code engine.dir} is the directory, {@code engine.memory} the memory in bytes. */
public final class EskerClient extends EngineClient {
    @Override
    Store open(Properties properties) {
        Options options = new Options().memory(Long.parseLong(properties.getProperty("engine.memory", "1073741824")));
        Kvdb db = Kvdb.open(Path.of(properties.getProperty("engine.dir")), Kvdb.Mode.OPEN_OR_CREATE, options);
        Kvs kvs = db.kvsOrCreate("usertable");
        return new Store() {
            @Override
            public byte[] get(byte[] key) {
                return kvs.get(key);
            }

            @Override
            public void put(byte[] key, byte[] value) {
                kvs.put(key, value);
            }

            @Override
            public void delete(byte[] key) {
                kvs.delete(key);
            }

            @Override
            public List<byte[]> scan(byte[] from, int count) {
                List<byte[]> values = new ArrayList<>(count);
                try (RowIterator rows = kvs.iterate(new Range().from(from).limit(count))) {
                    while (rows.hasNext()) {
                        values.add(rows.next().value());
                    }
                }
                return values;
            }

            @Override
            public void putAll(List<byte[]> keys, byte[] value) {
                Batch batch = new Batch();
                for (byte[] key : keys) {
                    batch.put(kvs, key, value);
                }
                db.write(batch);
            }

            @Override
            public void settle() {
                db.settle();
            }

            @Override
            public void close() {
                db.close();
            }
        };
    }
}
