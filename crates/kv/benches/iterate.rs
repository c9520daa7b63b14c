//! The cost of a row of an iterator beside one of a cursor, which lends its buffers: values of 1,000 bytes in DRAM.
//!
//! `cargo bench -p esker-kv --bench iterate`. Medians of seven rounds, in turns.

use std::time::Instant;

use esker_kv::{CompactRequest, KvError, Kvdb, Kvs, Location, Medium, Policy};

const ROWS: u32 = 200_000;
const ROUNDS: usize = 7;

fn by_cursor(kvs: &Kvs) -> Result<usize, KvError> {
    let (mut cursor, mut bytes) = (kvs.cursor()?, 0);
    while let Some((key, value)) = cursor.next()? {
        bytes += key.len() + value.len();
    }
    Ok(bytes)
}

fn by_iterator(kvs: &Kvs) -> Result<usize, KvError> {
    kvs.iter()?.map(|row| row.map(|(key, value)| key.len() + value.len())).sum()
}

/// The median of the rounds, in nanoseconds a row.
fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

#[allow(clippy::disallowed_methods)] // it measures
fn main() -> Result<(), KvError> {
    let scratch = tempfile::tempdir().expect("a directory");
    let location = Location::dir(scratch.path().join("db")).staging(Medium::InDir);
    let db = Kvdb::builder(location).memory(1 << 30).create()?;
    let kvs = db.create_kvs("k", Policy::default())?;
    for n in 0..ROWS {
        kvs.put(n.to_be_bytes(), [7; 1000])?;
    }
    db.compact(CompactRequest::Full)?;
    let (mut cursor, mut iterator) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (walk, rounds) in
            [(by_cursor as fn(&Kvs) -> _, &mut cursor), (by_iterator, &mut iterator)]
        {
            let began = Instant::now();
            assert_eq!(walk(&kvs)?, ROWS as usize * 1004);
            rounds.push(began.elapsed().as_nanos() as f64 / f64::from(ROWS));
        }
    }
    let (cursor, iterator) = (median(cursor), median(iterator));
    println!(
        "cursor {cursor:.0} ns, iterator {iterator:.0} ns a row: {:.2} times",
        iterator / cursor
    );
    db.close()
}
