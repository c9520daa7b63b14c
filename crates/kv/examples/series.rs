//! A time series: samples expire by themselves, a sensor is removed at once, and a window is read in order.
//!
//! `cargo run -p esker-kv --example series`

use esker_kv::{Batch, KvError, Kvdb, KvsOptions};

const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;

/// Sensor and time: numbers in big-endian order are sorted as numbers are.
fn key(sensor: u16, second: u64) -> Vec<u8> {
    [&sensor.to_be_bytes()[..], &second.to_be_bytes()].concat()
}

fn main() -> Result<(), KvError> {
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-series".into());
    let db = Kvdb::builder(dir).open_or_create()?;
    let samples = db.kvs_or_create("samples", KvsOptions::default().ttl_ms(WEEK_MS))?;
    for minute in 0..60 {
        let mut batch = Batch::new();
        for second in minute * 60..(minute + 1) * 60 {
            for sensor in 0..3 {
                let value = (u64::from(sensor) + second % 7).to_be_bytes();
                batch.put(&samples, key(sensor, second), value);
            }
        }
        db.write(&batch)?;
    }
    // One record each, however many samples they remove.
    samples.delete_range(key(1, 0)..key(1, 1800))?;
    samples.delete_prefix(2u16.to_be_bytes())?;
    let count = |sensor| samples.prefix(u16::to_be_bytes(sensor)).map(|all| all.keys().count());
    println!("samples of each sensor: {}, {}, {}", count(0)?, count(1)?, count(2)?);
    let mut sum = 0;
    for sample in samples.range(key(0, 600)..key(0, 660))? {
        let (_, value) = sample?;
        sum += value.last().copied().map_or(0, u64::from);
    }
    println!("sum of the eleventh minute of sensor 0: {sum}");
    let (last, _) = samples.prefix(1u16.to_be_bytes())?.next_back().expect("half is left")?;
    println!(
        "last of sensor 1: second {}",
        u64::from(last[last.len() - 1]) + 256 * u64::from(last[last.len() - 2])
    );
    db.close()
}
