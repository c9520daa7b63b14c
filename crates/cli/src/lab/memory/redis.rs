//! The load on Redis, over its socket: every reply is compared, and the snapshot is read again.

use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{Clock, Rng};
use esker_lab::memory::bench::Part;
use esker_lab::memory::program::SNAPSHOT;

use super::process::Process;

/// Records, and bytes of a value, of which the second half is one byte repeated.
const RECORDS: u32 = 200_000;
const VALUE: usize = 1000;
/// Operations at random, one at a time.
const RANDOM: u32 = 20_000;
/// Commands that are sent at once where order is known.
const BULK: u32 = 100;
/// SETs between two looks at a snapshot, and the rest between them.
const BETWEEN: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
/// How often a connection is tried, and the rest between.
const TRIES: usize = 600;
const STEP: Duration = Duration::from_millis(50);

/// A connection, and the contents that Redis is known to have.
pub(super) struct Load {
    input: BufReader<UnixStream>,
    clock: Clock,
    rng: Rng,
    /// Of each record, how often it was set.
    versions: Vec<u32>,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection has ended")
}

fn value(record: u32, version: u32) -> Vec<u8> {
    let mut bytes = vec![b'.'; VALUE];
    Rng::new(u64::from(record) << 32 | u64::from(version)).fill(&mut bytes[..VALUE / 2]);
    bytes
}

fn put(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend(b"\r\n");
    }
}

fn key(record: u32) -> Vec<u8> {
    format!("k{record}").into_bytes()
}

impl Load {
    /// Connects as soon as the server answers.
    ///
    /// # Errors
    /// The server has ended, or does not answer.
    pub(super) fn connect(socket: &Path, server: &mut Process, seed: u64) -> io::Result<Load> {
        let clock = Clock::real();
        for _ in 0..TRIES {
            if let Ok(stream) = UnixStream::connect(socket) {
                let (input, rng) = (BufReader::new(stream), Rng::new(seed));
                let mut load = Load { input, clock: clock.clone(), rng, versions: Vec::new() };
                // It answers with an error as long as it loads a snapshot.
                if load.call(&[&[b"PING"]]).is_ok() {
                    return Ok(load);
                }
            }
            if !server.is_running() {
                break;
            }
            clock.sleep(STEP);
        }
        // It tells why at its end.
        Err(ended())
    }

    fn call(&mut self, commands: &[&[&[u8]]]) -> io::Result<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        commands.iter().for_each(|words| put(&mut out, words));
        self.send(&out, commands.len())
    }

    fn send(&mut self, out: &[u8], replies: usize) -> io::Result<Vec<Vec<u8>>> {
        self.input.get_mut().write_all(out)?;
        (0..replies).map(|_| reply(&mut self.input)).collect()
    }

    fn set(&mut self, records: impl IntoIterator<Item = u32>) -> io::Result<()> {
        let (mut out, mut count) = (Vec::new(), 0);
        for record in records {
            let version = &mut self.versions[record as usize];
            *version += 1;
            put(&mut out, &[b"SET", &key(record), &value(record, *version)]);
            count += 1;
        }
        match self.send(&out, count)?.iter().all(|reply| reply == b"OK") {
            true => Ok(()),
            false => Err(wrong("a SET had another reply than OK")),
        }
    }

    fn check(&mut self, records: std::ops::Range<u32>) -> io::Result<()> {
        let (mut out, count) = (Vec::new(), records.len());
        records.clone().for_each(|record| put(&mut out, &[b"GET", &key(record)]));
        let replies = self.send(&out, count)?;
        for (record, found) in records.zip(replies) {
            if found != value(record, self.versions[record as usize]) {
                return Err(wrong(format!("record {record} has another value")));
            }
        }
        Ok(())
    }

    fn in_order(
        &mut self,
        mut act: impl FnMut(&mut Load, std::ops::Range<u32>) -> io::Result<()>,
    ) -> io::Result<f64> {
        let began = self.clock.now();
        for first in (0..RECORDS).step_by(BULK as usize) {
            act(self, first..RECORDS.min(first + BULK))?;
        }
        Ok(self.clock.now().since(began).as_secs_f64())
    }

    /// Runs it, and returns its parts and the versions that the snapshot has.
    ///
    /// # Errors
    /// The connection ends, or a reply is wrong.
    pub(super) fn run(&mut self) -> io::Result<(Vec<Part>, Vec<u32>)> {
        self.versions = vec![0; RECORDS as usize];
        let all = Some(u64::from(RECORDS));
        let load = self.in_order(Load::set)?;
        let mut times_us = Vec::new();
        let began = self.clock.now();
        for _ in 0..RANDOM {
            let record = self.random();
            let before = self.clock.now();
            match self.rng.chance(1, 2) {
                true => self.check(record..record + 1)?,
                false => self.set([record])?,
            }
            times_us.push(self.clock.now().since(before).as_secs_f64() * 1e6);
        }
        let random = self.clock.now().since(began).as_secs_f64();
        times_us.sort_by(f64::total_cmp);
        let ordered = self.in_order(Load::check)?;
        let (versions, snapshot) = (self.versions.clone(), self.snapshot()?);
        let phase = |name: &str, seconds, operations| Part {
            name: name.to_owned(),
            seconds,
            operations,
            p999_us: None,
        };
        let mut random = phase("GET and SET at random", random, Some(u64::from(RANDOM)));
        random.p999_us = times_us.get(times_us.len() * 999 / 1000).copied();
        let phases = vec![
            phase("SET in order", load, all),
            random,
            phase("GET in order", ordered, all),
            snapshot,
        ];
        Ok((phases, versions))
    }

    fn random(&mut self) -> u32 {
        u32::try_from(self.rng.below(u64::from(RECORDS))).unwrap_or(0)
    }

    fn snapshot(&mut self) -> io::Result<Part> {
        let began = self.clock.now();
        self.call(&[&[b"BGSAVE"]])?;
        let mut sets = 0;
        loop {
            let said = self.call(&[&[b"INFO", b"persistence"]])?.remove(0);
            let said = String::from_utf8_lossy(&said).into_owned();
            if said.contains("rdb_bgsave_in_progress:0") {
                let seconds = self.clock.now().since(began).as_secs_f64();
                if !said.contains("rdb_last_bgsave_status:ok") {
                    return Err(wrong("BGSAVE has failed"));
                }
                let (name, operations) = (SNAPSHOT.to_owned(), Some(sets));
                return Ok(Part { name, seconds, operations, p999_us: None });
            }
            let records: Vec<u32> = (0..BETWEEN).map(|_| self.random()).collect();
            self.set(records)?;
            sets += u64::from(BETWEEN);
            self.clock.sleep(PAUSE);
        }
    }

    /// Compares all records of a snapshot.
    ///
    /// # Errors
    /// A record is another one, or there are more.
    pub(super) fn verify(&mut self, versions: Vec<u32>) -> io::Result<()> {
        self.versions = versions;
        let size = self.call(&[&[b"DBSIZE"]])?.remove(0);
        if size != RECORDS.to_string().into_bytes() {
            return Err(wrong("the snapshot has another number of records"));
        }
        self.in_order(Load::check).map(|_| ())
    }

    /// Ends the server.
    pub(super) fn shut_down(mut self) -> io::Result<()> {
        let mut out = Vec::new();
        put(&mut out, &[b"SHUTDOWN", b"NOSAVE"]);
        self.input.get_mut().write_all(&out)
    }
}

/// A simple reply, or a bulk one (RESP2).
fn reply(input: &mut impl io::BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let Some(text) = line.strip_suffix(b"\r\n") else { return Err(ended()) };
    let said = String::from_utf8_lossy(&text[1..]).into_owned();
    match text[0] {
        b'-' => Err(wrong(said)),
        b'$' => {
            let size: i64 = said.parse().map_err(|_| wrong(format!("a size of '{said}'")))?;
            let size = u64::try_from(size).map_err(|_| wrong("a record is missing"))?;
            let mut bytes = vec![0; to_usize(size) + 2];
            input.read_exact(&mut bytes)?;
            bytes.truncate(to_usize(size));
            Ok(bytes)
        }
        _ => Ok(text[1..].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_errors_told() {
        let mut input = &b"+OK\r\n$3\r\na\r\n\r\n:7\r\n$-1\r\n-LOADING wait\r\n+half"[..];
        assert_eq!(reply(&mut input).unwrap(), b"OK");
        assert_eq!(reply(&mut input).unwrap(), b"a\r\n");
        assert_eq!(reply(&mut input).unwrap(), b"7");
        for part in ["missing", "LOADING", "ended"] {
            assert!(reply(&mut input).unwrap_err().to_string().contains(part), "{part}");
        }
    }

    #[test]
    fn values_differ_by_record_and_version_in_half_of_their_bytes() {
        let one = value(1, 1);
        assert!(one != value(1, 2) && one != value(2, 1) && one == value(1, 1));
        assert!(one.len() == VALUE && one[500..].iter().all(|byte| *byte == b'.'));
    }
}
