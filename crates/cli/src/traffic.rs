//! Bytes by media class and stream between two moments, and their ratio to each byte that the
//! user wrote.

use std::time::Duration;

use esker_base::units::human_bytes;
use esker_kv::{ClassStats, MediaClass, Stats, Stream};
use serde_json::{Value, json};

use crate::figures::align;

/// Device bytes for each user byte of HSE's load, as Micron published them (Heterogeneous-Memory
/// Storage Engine, load of 2 billion records of 1,000 bytes, staging and capacity media).
pub(crate) const HSE_ALL: f64 = 3.57;
/// The part of [`HSE_ALL`] that went to the capacity medium.
pub(crate) const HSE_CAPACITY: f64 = 1.49;

/// Bytes written between two moments.
pub(crate) struct Traffic {
    /// Keys and values that the user wrote.
    pub(crate) user_bytes: u64,
    /// By stream, for each class in the order of [`Traffic::classes`].
    streams: Vec<(String, Vec<u64>)>,
    classes: Vec<MediaClass>,
    /// How long each class had something to do, of the time.
    busy: Vec<f64>,
    /// Of the writers' time, the part in which they were slowed down or held up, by cause.
    held: [(&'static str, Duration); 4],
    manifest_bytes: u64,
    /// Of a load, bytes that have not aged yet: they are in memory and in the log.
    pub(crate) young_bytes: u64,
}

impl Traffic {
    /// Returns the bytes written from `before` to `after`.
    pub(crate) fn between(before: &Stats, after: &Stats) -> Traffic {
        let mut streams: Vec<(String, Vec<u64>)> = Vec::new();
        for (now, then) in after.classes.iter().zip(&before.classes) {
            for (now, then) in now.streams.iter().zip(&then.streams) {
                let name = now.stream.to_string();
                let written = now.written_bytes - then.written_bytes;
                match streams.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, row)) => row.push(written),
                    None => streams.push((name, vec![written])),
                }
            }
        }
        let user_bytes = after.user_bytes - before.user_bytes;
        let open_ns = (after.open_ns - before.open_ns).max(1);
        let busy = |(now, then): (&ClassStats, &ClassStats)| {
            (now.busy_ns - then.busy_ns) as f64 / open_ns as f64
        };
        let (now, then) = (&after.stalls, &before.stalls);
        let held = [
            ("stalled", now.total_ns - then.total_ns),
            ("paced by spills", now.paced_by_spills_ns - then.paced_by_spills_ns),
            ("paced by ingest", now.paced_by_ingest_ns - then.paced_by_ingest_ns),
            ("paced by the log", now.paced_by_log_ns - then.paced_by_log_ns),
        ];
        let streams_after = after.classes.iter().flat_map(|class| &class.streams);
        let old = streams_after.filter(|stream| stream.stream == Stream::OldValues);
        let old_bytes: u64 = old.map(|stream| stream.live_bytes).sum();
        Traffic {
            user_bytes,
            streams,
            classes: after.classes.iter().map(|class| class.class).collect(),
            busy: after.classes.iter().zip(&before.classes).map(busy).collect(),
            held: held.map(|(cause, ns)| (cause, Duration::from_nanos(ns))),
            manifest_bytes: after.manifest_written_bytes - before.manifest_written_bytes,
            young_bytes: user_bytes.saturating_sub(old_bytes),
        }
    }

    /// Bytes written to a class.
    pub(crate) fn class_bytes(&self, class: MediaClass) -> u64 {
        let column = self.classes.iter().position(|known| *known == class);
        let rows = self.streams.iter().filter_map(|(_, row)| row.get(column?));
        rows.sum()
    }

    /// Bytes written to all devices, the manifest's included.
    pub(crate) fn all_bytes(&self) -> u64 {
        let classes = self.classes.iter().map(|class| self.class_bytes(*class));
        classes.sum::<u64>() + self.manifest_bytes
    }

    /// Device bytes for each user byte.
    pub(crate) fn per_user_byte(&self, bytes: u64) -> f64 {
        bytes as f64 / self.user_bytes.max(1) as f64
    }

    /// A line for each stream, a column for each class.
    pub(crate) fn table(&self) -> String {
        let mut header = vec![String::new()];
        header.extend(self.classes.iter().map(ToString::to_string));
        header.extend(["all".to_owned(), "per user byte".to_owned()]);
        let mut rows = vec![header];
        let mut push = |name: &str, row: Vec<String>, all: u64| {
            let mut cells = vec![name.to_owned()];
            cells.extend(row);
            cells.push(human_bytes(all));
            cells.push(format!("{:.2}", self.per_user_byte(all)));
            rows.push(cells);
        };
        let shown = |&bytes: &u64| {
            if bytes == 0 { "-".to_owned() } else { human_bytes(bytes) }
        };
        for (name, row) in &self.streams {
            push(name, row.iter().map(shown).collect(), row.iter().sum());
        }
        let none = self.classes.iter().map(|_| "-".to_owned()).collect();
        push("manifest", none, self.manifest_bytes);
        let classes: Vec<u64> = self.classes.iter().map(|c| self.class_bytes(*c)).collect();
        push("written in all", classes.iter().map(shown).collect(), self.all_bytes());
        let mut last = vec!["per user byte".to_owned()];
        last.extend(classes.iter().map(|bytes| format!("{:.2}", self.per_user_byte(*bytes))));
        last.push(format!("{:.2}", self.per_user_byte(self.all_bytes())));
        rows.push(last);
        align(&rows, 1)
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> Value {
        let ratio = |bytes: u64| self.per_user_byte(bytes);
        let capacity = self.class_bytes(MediaClass::Capacity);
        let streams: Vec<Value> = self
            .streams
            .iter()
            .flat_map(|(name, row)| {
                let cells = row.iter().zip(&self.classes);
                cells.map(move |(bytes, class)| {
                    json!({ "stream": name, "class": class, "written_bytes": bytes })
                })
            })
            .collect();
        json!({
            "user_bytes": self.user_bytes,
            "device_written_bytes": self.all_bytes(),
            "capacity_written_bytes": capacity,
            "manifest_written_bytes": self.manifest_bytes,
            "device_bytes_per_user_byte": ratio(self.all_bytes()),
            "capacity_bytes_per_user_byte": ratio(capacity),
            "streams": streams,
            "busy": self.classes.iter().zip(&self.busy).map(|(class, busy)| json!({ "class": class, "share": busy })).collect::<Vec<_>>(),
            "writers_held_seconds": self.held.iter().map(|(cause, time)| ((*cause).to_owned(), json!(time.as_secs_f64()))).collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Several runs beside each other: a column for each, up to seven in a block.
pub(crate) fn columns(runs: &[(&str, &Traffic)], cpu_us: &[Option<f64>]) -> String {
    const SIDE_BY_SIDE: usize = 7;
    let blocks = runs.chunks(SIDE_BY_SIDE).zip(cpu_us.chunks(SIDE_BY_SIDE));
    let texts: Vec<String> = blocks.map(|(runs, cpu_us)| block(runs, cpu_us)).collect();
    texts.join("\n")
}

fn block(runs: &[(&str, &Traffic)], cpu_us: &[Option<f64>]) -> String {
    let mut rows = Vec::new();
    let mut push = |name: String, cells: Vec<String>| {
        if cells.iter().any(|cell| cell != "-") {
            rows.push([vec![name], cells].concat());
        }
    };
    let each = |figure: &dyn Fn(&Traffic) -> String| -> Vec<String> {
        runs.iter().map(|(_, traffic)| figure(traffic)).collect()
    };
    push(String::new(), runs.iter().map(|(name, _)| (*name).to_owned()).collect());
    push("user".into(), each(&|t| compact(t.user_bytes)));
    let Some((_, first)) = runs.first() else {
        return String::new();
    };
    for (column, class) in first.classes.iter().enumerate() {
        for (index, (name, _)) in first.streams.iter().enumerate() {
            let cell = |t: &Traffic| compact(t.streams[index].1[column]);
            push(format!("{class}, {}", short_stream(name)), each(&cell));
        }
    }
    push("manifest".into(), each(&|t| compact(t.manifest_bytes)));
    push("all devices".into(), each(&|t| compact(t.all_bytes())));
    let ratio = |traffic: &Traffic| match traffic.user_bytes {
        0 => "-".to_owned(),
        _ => format!("{:.2}", traffic.per_user_byte(traffic.all_bytes())),
    };
    push("per user byte".into(), each(&ratio));
    let cpu = cpu_us.iter().map(|us| us.map_or("-".to_owned(), |us| format!("{us:.1}")));
    push("CPU µs per op".into(), cpu.collect());
    for (column, class) in first.classes.iter().enumerate() {
        push(format!("{class} busy"), each(&|t| format!("{:.0} %", 100.0 * t.busy[column])));
    }
    for (row, (cause, _)) in first.held.iter().enumerate() {
        let cell = |t: &Traffic| match t.held[row].1 {
            Duration::ZERO => "-".to_owned(),
            time => format!("{:.2} s", time.as_secs_f64()),
        };
        push(format!("writers {cause}"), each(&cell));
    }
    align(&rows, 1)
}

/// A stream's name without its explanation.
fn short_stream(name: &str) -> &str {
    name.split_once(" =").map_or(name, |(short, _)| short)
}

/// Bytes in as few columns as can be.
fn compact(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        _ => human_bytes(bytes),
    }
}
