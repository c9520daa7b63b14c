//! The screen of `esker kv info`: a KVDB's content and work, for people.

use std::fmt;

use esker_base::units::{counted, grouped, human_bytes, to_u64};
use esker_kv::Stats;

/// A part of a time in percent.
#[allow(clippy::cast_precision_loss)] // for people
fn share(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A KVDB's figures on a screen.
pub(super) struct Screen<'s>(pub(super) &'s Stats);

impl Screen<'_> {
    /// Whether nothing was asked and nothing written since it was opened: counters say nothing then.
    fn is_idle(&self) -> bool {
        let o = &self.0.operations;
        let writes = o.puts + o.deletes + o.prefix_deletes + o.range_deletes + o.batches + o.syncs;
        writes + o.gets + o.cursor_steps + self.0.device_written_bytes == 0
    }

    /// Writes the counters since it was opened.
    fn fmt_counters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_precision_loss)] // milliseconds for people
        let ms = |ns: u64| ns as f64 / 1e6;
        writeln!(
            f,
            "bytes since it was opened: user {}, devices {} ({:.2} per user byte), manifest {}",
            human_bytes(self.0.user_bytes),
            human_bytes(self.0.device_written_bytes),
            self.0.write_amplification,
            human_bytes(self.0.manifest_written_bytes)
        )?;
        let o = &self.0.operations;
        writeln!(
            f,
            "operations: {} puts, {} gets, {} deletes, {} prefix deletes, {} range deletes, {} batches, {} cursor steps, \
             {} syncs",
            o.puts,
            o.gets,
            o.deletes,
            o.prefix_deletes,
            o.range_deletes,
            o.batches,
            o.cursor_steps,
            o.syncs
        )?;
        let c = &self.0.cache;
        writeln!(
            f,
            "caches: {}, {}, {} of them by key, misses: {}; {} missed",
            counted(c.records, "record"),
            counted(c.record_hits, "hit"),
            grouped(c.record_hits_by_key),
            grouped(c.record_misses),
            counted(c.key_page_misses, "key page")
        )?;
        let m = &self.0.maintenance;
        writeln!(
            f,
            "maintenance: {} log flushes, {} ingests, {} spills,\n  {} compactions, {} collections, {} splits, {} joins, {} sorts, {} expirations, {} young blocks;\n  a second worker ran {} of these",
            m.log_flushes,
            m.ingests,
            m.spills,
            m.compactions,
            m.collections,
            m.splits,
            m.joins,
            m.sorts,
            m.expirations,
            m.young_blocks,
            m.helped
        )?;
        let s = &self.0.stalls;
        writeln!(
            f,
            "stalls: {} for other writers, {} for memtables, {} for segments, {} for durability;\n  {:.1} ms in all, longest {:.1} ms; slowed down for {:.1} ms by spills, {:.1} ms by ingest, {:.1} ms by the log",
            s.writer,
            s.memtable,
            s.segment,
            s.durability,
            ms(s.total_ns),
            ms(s.longest_ns),
            ms(s.paced_by_spills_ns),
            ms(s.paced_by_ingest_ns),
            ms(s.paced_by_log_ns)
        )
    }
}

/// The screen of `esker kv info`, which opens to read only and asks nothing: of a KVDB that is idle, what
/// it holds and no counters.
impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = |bytes: u64| human_bytes(bytes);
        let is_idle = self.is_idle();
        for class in &self.0.classes {
            writeln!(f, "{} class: {}", class.class, class.device)?;
            writeln!(
                f,
                "  used {} of {}, live {}, garbage {}",
                b(class.used_bytes),
                b(class.capacity_bytes),
                b(class.live_bytes),
                b(class.garbage_bytes)
            )?;
            if class.pinned_bytes > 0 {
                writeln!(f, "  pinned {} by open readers alone", b(class.pinned_bytes))?;
            }
            if class.reserve_bytes > 0 {
                let kept = b(class.reserve_bytes);
                writeln!(f, "  reserve {kept}, kept for a full file system")?;
            }
            if !is_idle {
                writeln!(
                    f,
                    "  busy {} of the time it is open",
                    share(class.busy_ns, self.0.open_ns)
                )?;
            }
            let traffic = |written: &str, read: &str, reads: &str| match is_idle {
                true => String::new(),
                false => format!("{written:>12}{read:>12}{reads:>12}"),
            };
            let columns = traffic("written", "read", "reads");
            writeln!(f, "  {:<20}{:>12}{columns}", "stream", "live")?;
            for s in &class.streams {
                let id = s.placement.map(|id| format!("  placement {id}")).unwrap_or_default();
                let (written, read) = (b(s.written_bytes), b(s.read_bytes));
                let columns = traffic(&written, &read, &s.reads.to_string());
                writeln!(f, "  {:<20}{:>12}{columns}{id}", s.stream, b(s.live_bytes))?;
            }
        }
        let d = &self.0.dram;
        writeln!(f, "DRAM: {} of {}", b(d.total_bytes()), b(d.budget_bytes))?;
        writeln!(
            f,
            "  memtables {}, log buffers {}, filters {}, indexes {}, structures {},\n  key pages {}, record cache {} of {}, \
             windows of cursors {}, cursors {}",
            b(d.memtable_bytes),
            b(d.log_buffer_bytes),
            b(d.filter_bytes),
            b(d.index_bytes),
            b(d.structure_bytes),
            b(d.key_page_bytes),
            b(d.record_cache_bytes),
            b(d.record_cache_capacity_bytes),
            b(d.window_bytes),
            b(d.cursor_bytes)
        )?;
        if !is_idle {
            self.fmt_counters(f)?;
        }
        let t = &self.0.transactions;
        if t.open as u64 + t.committed + t.conflicts + t.expired > 0 {
            writeln!(
                f,
                "transactions: {} open, {} committed, {} conflicts, {} open for too long; {} of history",
                t.open,
                t.committed,
                t.conflicts,
                t.expired,
                b(t.history_bytes)
            )?;
        }
        let r = &self.0.readers;
        for (kind, of) in [("cursors", r.cursors), ("snapshots", r.snapshots)] {
            if of.open > 0 {
                writeln!(
                    f,
                    "{kind}: {} open, the oldest for {} s",
                    of.open,
                    of.oldest_ns / 1_000_000_000
                )?;
            }
        }
        for k in &self.0.kvss {
            writeln!(
                f,
                "KVS {}: {} ({}), {}, policy {},\n  root of {}, leaves: {} of {}",
                k.name,
                counted(k.entries, "entry"),
                counted(k.tombstones, "tombstone"),
                counted(k.range_tombstones, "deleted range"),
                k.policy,
                counted(to_u64(k.root_kvsets), "kvset"),
                grouped(to_u64(k.leaves)),
                counted(to_u64(k.leaf_kvsets), "kvset")
            )?;
            if let Some(ttl_ms) = k.ttl_ms {
                writeln!(f, "  time to live {ttl_ms} ms")?;
            }
            writeln!(
                f,
                "  compression {}: {} of values, stored in {} ({:.2} : 1)",
                k.compression,
                b(k.plain_value_bytes),
                b(k.value_bytes),
                k.compression_ratio()
            )?;
            writeln!(
                f,
                "  {:<20}{:>12}{:>13}{:>12}{:>12}",
                "lies on", "young keys", "young values", "old keys", "old values"
            )?;
            for p in &k.places {
                writeln!(
                    f,
                    "  {:<20}{:>12}{:>13}{:>12}{:>12}",
                    p.class.to_string(),
                    b(p.young_keys_bytes),
                    b(p.young_values_bytes),
                    b(p.old_keys_bytes),
                    b(p.old_values_bytes)
                )?;
            }
        }
        match &self.0.stopped {
            Some(why) => writeln!(f, "WRITES ARE REFUSED: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_device::{Device, MemoryDevice};
    use esker_kv::{Kvdb, Location, Options, Policy};

    use super::*;

    #[test]
    fn a_reader_is_shown_what_there_is_and_no_counters_of_nothing() {
        let memory =
            |name, bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, bytes, 512)) };
        let (manifest, capacity) = (memory("m", 16 << 20), memory("c", 256 << 20));
        let location = Location::devices(manifest, capacity);
        let options = || Options::default().with(|set| set.memory_bytes = 16 << 20);
        let db = Kvdb::builder(&location).options(options()).create().unwrap();
        db.create_kvs("a", Policy::default()).unwrap().put(b"k", b"v").unwrap();
        let counters =
            ["written", "bytes since", "operations: ", "caches: ", " young blocks", "stalls: "];
        let shown = Screen(&db.stats()).to_string();
        assert!(counters.iter().all(|counter| shown.contains(counter)), "{shown}");
        db.close().unwrap();
        let db = Kvdb::builder(&location).options(options()).open_read_only().unwrap();
        let shown = Screen(&db.stats()).to_string();
        assert!(!counters.iter().any(|counter| shown.contains(counter)), "{shown}");
        for held in ["garbage", "old values", "DRAM: ", "policy staging-max-capacity"] {
            assert!(shown.contains(held), "{held}: {shown}");
        }
        db.kvs("a").unwrap().get(b"k").unwrap();
        let shown = Screen(&db.stats()).to_string();
        assert!(shown.contains("operations: 0 puts, 1 gets"), "{shown}");
    }
}
