//! A KVDB.

use esker_kv::{KvsStats, Observer, Stats, Stream};

use super::families::seconds;
use super::{Collector, Families};

/// So many KVSs have metrics of their own; the rest are [`OTHERS`] together.
const NAMED: usize = 64;
/// The label of the rest.
const OTHERS: &str = "(others)";

/// The collector.
pub(crate) struct Engine(pub(crate) Observer);

impl Collector for Engine {
    fn collect(&self, families: &mut Families) {
        let Some(stats) = self.0.stats() else { return };
        operations(families, &stats);
        classes(families, &stats);
        memory(families, &stats);
        maintenance(families, &stats);
        writers(families, &stats);
        transactions(families, &stats);
        readers(families, &stats);
        kvss(families, &stats.kvss);
    }
}

/// One label's values.
fn by<V>(values: impl IntoIterator<Item = (&'static str, V)>) -> Vec<([String; 1], V)> {
    values.into_iter().map(|(label, value)| ([label.to_owned()], value)).collect()
}

fn label(stream: Stream) -> &'static str {
    match stream {
        Stream::Log => "log",
        Stream::YoungKeys => "young_keys",
        Stream::OldKeys => "old_keys",
        Stream::OldValues => "old_values",
        Stream::Manifest => "manifest",
    }
}

fn operations(families: &mut Families, stats: &Stats) {
    let calls = &stats.operations;
    let operations = [
        ("put", calls.puts),
        ("get", calls.gets),
        ("delete", calls.deletes),
        ("prefix_delete", calls.prefix_deletes),
        ("range_delete", calls.range_deletes),
        ("batch", calls.batches),
        ("cursor_step", calls.cursor_steps),
        ("sync", calls.syncs),
    ];
    let about = ("esker_kv_operations_total", "Calls, by operation", ["operation"]);
    families.counters(about, by(operations));
    let help = "Keys, deleted or expired, that cursors passed over one by one";
    families.counter("esker_kv_passed_keys_total", help, calls.passed_keys);
    let help = "Keys and values that callers have written";
    families.counter("esker_kv_user_written_bytes_total", help, stats.user_bytes);
    let help = "Bytes written to all devices for each byte of callers";
    families.gauge("esker_kv_write_amplification_ratio", help, stats.write_amplification);
    let help = "Whether writes are refused after a failure";
    families.gauge("esker_kv_stopped", help, stats.stopped.is_some());
    families.gauge(
        "esker_kv_open_seconds",
        "How long the KVDB has been open",
        seconds(stats.open_ns),
    );
}

fn classes(families: &mut Families, stats: &Stats) {
    for class in &stats.classes {
        let one = || [class.class.to_string()];
        for (name, help, bytes) in [
            ("esker_kv_class_capacity_bytes", "Size of a media class", class.capacity_bytes),
            ("esker_kv_class_used_bytes", "Allocated on a media class", class.used_bytes),
            ("esker_kv_class_reserve_bytes", "Kept for a full file system", class.reserve_bytes),
            ("esker_kv_class_live_bytes", "Records and keys referred to", class.live_bytes),
            ("esker_kv_class_garbage_bytes", "Allocated, not referred to", class.garbage_bytes),
            (
                "esker_kv_class_pinned_bytes",
                "Kept for nothing but open readers",
                class.pinned_bytes,
            ),
        ] {
            families.gauges((name, help, ["class"]), [(one(), bytes)]);
        }
        let help = "Time with a command or more in flight on the class";
        let about = ("esker_kv_class_busy_seconds_total", help, ["class"]);
        families.counters(about, [(one(), seconds(class.busy_ns))]);
        for stream in &class.streams {
            let labels = || [class.class.to_string(), label(stream.stream).to_owned()];
            let names = ["class", "stream"];
            for (name, help, count) in [
                ("esker_kv_written_bytes_total", "Bytes written", stream.written_bytes),
                ("esker_kv_read_bytes_total", "Bytes read", stream.read_bytes),
                ("esker_kv_reads_total", "Reads of devices", stream.reads),
            ] {
                families.counters((name, help, names), [(labels(), count)]);
            }
            let about = ("esker_kv_stream_live_bytes", "Bytes referred to, by stream", names);
            families.gauges(about, [(labels(), stream.live_bytes)]);
        }
    }
    let help = "Bytes written to the manifest";
    families.counter("esker_kv_manifest_written_bytes_total", help, stats.manifest_written_bytes);
}

fn memory(families: &mut Families, stats: &Stats) {
    let dram = &stats.dram;
    let purposes = [
        ("memtable", dram.memtable_bytes),
        ("log_buffer", dram.log_buffer_bytes),
        ("filter", dram.filter_bytes),
        ("index", dram.index_bytes),
        ("structure", dram.structure_bytes),
        ("key_page", dram.key_page_bytes),
        ("record_cache", dram.record_cache_bytes),
        ("window", dram.window_bytes),
        ("cursor", dram.cursor_bytes),
    ];
    families.gauges(("esker_kv_memory_bytes", "DRAM, by purpose", ["purpose"]), by(purposes));
    families.gauge("esker_kv_memory_budget_bytes", "DRAM that was allowed", dram.budget_bytes);
    let help = "The size to which the record cache may grow";
    families.gauge("esker_kv_record_cache_limit_bytes", help, dram.record_cache_capacity_bytes);
    let cache = &stats.cache;
    families.gauge("esker_kv_record_cache_records", "Records in the record cache", cache.records);
    for (name, help, count) in [
        ("esker_kv_record_cache_hits_total", "Records found in DRAM", cache.record_hits),
        (
            "esker_kv_record_cache_hits_by_key_total",
            "Of the records found in DRAM, those that took no search for the key",
            cache.record_hits_by_key,
        ),
        ("esker_kv_record_cache_misses_total", "Records read from a device", cache.record_misses),
        (
            "esker_kv_key_page_misses_total",
            "Searches that had to read a key page",
            cache.key_page_misses,
        ),
    ] {
        families.counter(name, help, count);
    }
}

fn maintenance(families: &mut Families, stats: &Stats) {
    let done = &stats.maintenance;
    let steps = [
        ("log_flush", done.log_flushes),
        ("ingest", done.ingests),
        ("spill", done.spills),
        ("compaction", done.compactions),
        ("collection", done.collections),
        ("expiration", done.expirations),
        ("split", done.splits),
        ("join", done.joins),
        ("sort", done.sorts),
    ];
    let about = ("esker_kv_maintenance_steps_total", "Steps of maintenance, by kind", ["step"]);
    families.counters(about, by(steps));
    let help = "Steps of maintenance that a second worker ran";
    families.counter("esker_kv_helped_steps_total", help, done.helped);
    let help = "Blocks of values that ingests wrote, because they were not to stay in the log";
    families.counter("esker_kv_young_blocks_total", help, done.young_blocks);
}

fn writers(families: &mut Families, stats: &Stats) {
    let stalls = &stats.stalls;
    let causes = [
        ("writer", stalls.writer),
        ("memtable", stalls.memtable),
        ("segment", stalls.segment),
        ("durability", stalls.durability),
    ];
    let about = ("esker_kv_stalls_total", "Write stalls, by what was waited for", ["cause"]);
    families.counters(about, by(causes));
    let help = "Time for which writers stalled";
    families.counter("esker_kv_stall_seconds_total", help, seconds(stalls.total_ns));
    let help = "The longest write stall since the KVDB was opened";
    families.gauge("esker_kv_longest_stall_seconds", help, seconds(stalls.longest_ns));
    let causes = [
        ("spills", seconds(stalls.paced_by_spills_ns)),
        ("ingest", seconds(stalls.paced_by_ingest_ns)),
        ("log", seconds(stalls.paced_by_log_ns)),
    ];
    let help = "Time for which writers were slowed down, by cause";
    families.counters(("esker_kv_paced_seconds_total", help, ["cause"]), by(causes));
}

fn transactions(families: &mut Families, stats: &Stats) {
    let transactions = &stats.transactions;
    families.gauge("esker_kv_open_transactions", "Transactions that are open", transactions.open);
    let ends = [
        ("committed", transactions.committed),
        ("conflict", transactions.conflicts),
        ("expired", transactions.expired),
    ];
    let about = ("esker_kv_transactions_total", "Transactions that ended, by outcome", ["outcome"]);
    families.counters(about, by(ends));
    let help = "DRAM of what is kept to find conflicts";
    families.gauge("esker_kv_transaction_history_bytes", help, transactions.history_bytes);
}

fn readers(families: &mut Families, stats: &Stats) {
    let readers = &stats.readers;
    let kinds = [
        ("cursor", readers.cursors),
        ("snapshot", readers.snapshots),
        ("transaction", readers.transactions),
    ];
    let about = ("esker_kv_open_readers", "Readers that are open, by kind", ["kind"]);
    families.gauges(about, by(kinds.map(|(kind, of)| (kind, of.open as u64))));
    let help = "How long the oldest open reader of a kind has been open";
    let about = ("esker_kv_oldest_reader_seconds", help, ["kind"]);
    families.gauges(about, by(kinds.map(|(kind, of)| (kind, seconds(of.oldest_ns)))));
    let help = "DRAM of memtables that are kept for nothing but open readers";
    families.gauge("esker_kv_pinned_memtable_bytes", help, readers.pinned_memtable_bytes);
}

/// A figure of a KVS.
type Figure = fn(&KvsStats) -> u64;

const OF_KVS: [(&str, &str, Figure); 8] = [
    ("esker_kv_kvs_entries", "Entries, older versions and tombstones included", |kvs| kvs.entries),
    ("esker_kv_kvs_tombstones", "Tombstones", |kvs| kvs.tombstones),
    ("esker_kv_kvs_range_tombstones", "Deleted ranges and prefixes that are remembered", |kvs| {
        kvs.range_tombstones
    }),
    ("esker_kv_kvs_value_bytes", "Records, as they are stored", |kvs| kvs.value_bytes),
    ("esker_kv_kvs_plain_value_bytes", "Records, were none compressed", |kvs| {
        kvs.plain_value_bytes
    }),
    ("esker_kv_kvs_leaves", "Leaves of the tree", |kvs| kvs.leaves as u64),
    ("esker_kv_kvs_root_kvsets", "Kvsets in the root", |kvs| kvs.root_kvsets as u64),
    ("esker_kv_kvs_leaf_kvsets", "Kvsets in the leaves", |kvs| kvs.leaf_kvsets as u64),
];

fn kvss(families: &mut Families, all: &[KvsStats]) {
    let (named, others) = all.split_at(all.len().min(NAMED));
    for (name, help, figure) in OF_KVS {
        let about = (name, help, ["kvs"]);
        families.gauges(about, named.iter().map(|kvs| ([kvs.name.clone()], figure(kvs))));
        if !others.is_empty() {
            let sum: u64 = others.iter().map(figure).sum();
            families.gauges(about, [([OTHERS.to_owned()], sum)]);
        }
    }
}
