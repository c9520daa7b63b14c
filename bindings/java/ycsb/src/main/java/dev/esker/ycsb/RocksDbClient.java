package dev.esker.ycsb;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompressionType;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * YCSB on RocksDB, with the same properties: a block cache of three quarters of the memory, and a Bloom filter. It does not
 * compress, as Esker does not, and has two write buffers of 64 MiB, its default.
 */
public final class RocksDbClient extends EngineClient {
    @Override
    Store open(Properties properties) throws RocksDBException {
        long memory = Long.parseLong(properties.getProperty("engine.memory", "1073741824"));
        RocksDB.loadLibrary();
        LRUCache cache = new LRUCache(memory / 4 * 3);
        BloomFilter filter = new BloomFilter(10);
        Options options = new Options().setCreateIfMissing(true).setIncreaseParallelism(2)
                .setCompressionType(CompressionType.NO_COMPRESSION)
                .setTableFormatConfig(new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter));
        RocksDB db = RocksDB.open(options, properties.getProperty("engine.dir"));
        return new Store() {
            @Override
            public byte[] get(byte[] key) throws RocksDBException {
                return db.get(key);
            }

            @Override
            public void put(byte[] key, byte[] value) throws RocksDBException {
                db.put(key, value);
            }

            @Override
            public void delete(byte[] key) throws RocksDBException {
                db.delete(key);
            }

            @Override
            public List<byte[]> scan(byte[] from, int count) throws RocksDBException {
                List<byte[]> values = new ArrayList<>(count);
                try (ReadOptions reading = new ReadOptions(); RocksIterator rows = db.newIterator(reading)) {
                    for (rows.seek(from); rows.isValid() && values.size() < count; rows.next()) {
                        values.add(rows.value());
                    }
                    rows.status();
                }
                return values;
            }

            @Override
            public void putAll(List<byte[]> keys, byte[] value) throws RocksDBException {
                try (WriteOptions writing = new WriteOptions(); WriteBatch batch = new WriteBatch()) {
                    for (byte[] key : keys) {
                        batch.put(key, value);
                    }
                    db.write(writing, batch);
                }
            }

            @Override
            public void settle() throws RocksDBException, InterruptedException {
                for (String due : List.of("mem-table-flush-pending", "num-running-flushes", "compaction-pending",
                        "num-running-compactions")) {
                    while (db.getLongProperty("rocksdb." + due) != 0) {
                        Thread.sleep(50);
                    }
                }
            }

            @Override
            public void close() throws RocksDBException {
                db.closeE();
                options.close();
                filter.close();
                cache.close();
            }
        };
    }
}
