//! A load like that of MySQL with InnoDB, as its block device sees it.
//!
//! Transactions read and change pages of a table that is far larger than the buffer pool. The
//! device sees the I/O that InnoDB's rules make of that: reads of pages that are not in the pool;
//! the redo log, written and flushed at every commit; the binary log beside it; and dirty pages,
//! which leave in batches, first to the doublewrite area and then to their places, in bursts when
//! the log runs short of room, a few each second, or one at a time when the pool needs their
//! frames. Now and then a scan reads a part of the table from one end to the other.
//!
//! Sources: the MySQL 8.0 reference manual, sections 17.5 ("InnoDB In-Memory Structures"), 17.6
//! ("InnoDB On-Disk Structures") and 17.14 (system variables), for structures and defaults; sysbench's
//! `oltp_read_write` for the shape of a transaction. [`MysqlOptions`] gives the reason of each value.
//!
//! Left out: undo and the change buffer, compression, internal pages of the B-trees (which stay in
//! the pool), checkpoints' headers of the log, and flushing of neighbours (off by default since 8.0).
//!
//! Invariants
//! 1. A page is written to its place only after its copy in the doublewrite area and a flush.
//! 2. The log never overwrites a change whose page is not on the device.
//! 3. Times do not go back, and the same options give the same requests.

use std::collections::VecDeque;
use std::ops::Range;

use esker_base::Rng;
use esker_base::units::{round_down, round_up, to_u64};

use super::pool::Pool;
use super::skew::{Scatter, Skew};
use crate::error::{Result, TraceError};
use crate::request::{MAX_OFFSET, Op, Request};

const MIB: u64 = 1 << 20;

/// The parameters of a [`MysqlLoad`]. The defaults stand for a database server under OLTP.
#[derive(Clone, Debug, PartialEq)]
pub struct MysqlOptions {
    /// The table, in bytes. Default 16 GiB: large against the pool, small enough for experiments.
    pub data_bytes: u64,
    /// `innodb_page_size`: 16 KiB, its default.
    pub page_bytes: u64,
    /// `innodb_buffer_pool_size`. Default 1 GiB: a sixteenth of the table. The manual recommends
    /// half to three quarters of the memory; databases behind a flash cache are larger than memory.
    pub pool_bytes: u64,
    /// The skew of pages' popularity: the exponent of a power law. Default 0.8: YCSB's 0.99 is for
    /// rows, and a page of 16 KiB averages over about a hundred of them, which flattens the law.
    pub theta: f64,
    /// Pages that a transaction reads. Default 14: ten point queries and four short ranges, as
    /// sysbench's `oltp_read_write`.
    pub reads: u32,
    /// Pages that a transaction changes, all of which it has read. Default 4: two updates, a delete
    /// and an insert, as there.
    pub changes: u32,
    /// The share of transactions that only read, in percent. Default 70: OLTP reads more than it
    /// writes.
    pub read_only_percent: u32,
    /// Transactions a second. Default 1,000.
    pub transactions_per_s: f64,
    /// Transactions whose commit shares one write and flush of the logs (group commit). Default 4.
    pub group: u32,
    /// Bytes that a change of a page adds to the redo log. Default 400: a row's old and new columns, undo included.
    pub redo_bytes: u64,
    /// `innodb_redo_log_capacity`: 100 MiB, its default.
    pub redo_capacity_bytes: u64,
    /// Bytes that a change adds to the binary log (`sync_binlog` = 1, the default); 0 for none. Default 300.
    pub binlog_bytes: u64,
    /// Whether pages go through the doublewrite area (`innodb_doublewrite`, on by default).
    pub doublewrite: bool,
    /// Pages of a batch that is written together. Default 128: the manual's for the doublewrite area.
    pub batch_pages: u32,
    /// `innodb_io_capacity`: dirty pages written each second without need. Default 200, its default.
    pub clean_pages_per_s: u32,
    /// The bytes that a scan reads. Default 256 MiB.
    pub scan_bytes: u64,
    /// Transactions between two scans, on average; 0 for none. Default 60,000: one a minute, a report
    /// or a backup of a part.
    pub scan_every: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for MysqlOptions {
    fn default() -> MysqlOptions {
        MysqlOptions {
            data_bytes: 16 << 30,
            page_bytes: 16 << 10,
            pool_bytes: 1 << 30,
            theta: 0.8,
            reads: 14,
            changes: 4,
            read_only_percent: 70,
            transactions_per_s: 1000.0,
            group: 4,
            redo_bytes: 400,
            redo_capacity_bytes: 100 * MIB,
            binlog_bytes: 300,
            doublewrite: true,
            batch_pages: 128,
            clean_pages_per_s: 200,
            scan_bytes: 256 * MIB,
            scan_every: 60_000,
            seed: 1,
        }
    }
}

impl MysqlOptions {
    /// Names the problem and a remedy.
    fn check(&self) -> Result<()> {
        let page = self.page_bytes;
        let wrong = |what: String| Err(TraceError::Invalid(what));
        if !page.is_power_of_two() || !(4096..=65536).contains(&page) {
            return wrong(format!(
                "pages of {page} bytes; use a power of two from 4 KiB to 64 KiB"
            ));
        }
        if self.data_bytes / page < 1024 || self.data_bytes > MAX_OFFSET / 2 {
            return wrong(format!(
                "a table of {} bytes; use 1,024 pages to 32 PiB",
                self.data_bytes
            ));
        }
        let (pool, batch) = (self.pool_bytes / page, u64::from(self.batch_pages));
        if pool < 64 || pool > u64::from(u32::MAX) {
            return wrong(format!("a pool of {} bytes; use 64 pages to 2^32", self.pool_bytes));
        }
        if !(1..=1024).contains(&batch) || batch > pool {
            return wrong(format!(
                "batches of {batch} pages; use 1 to 1,024, and fewer than the pool"
            ));
        }
        if !(0.0..=2.0).contains(&self.theta) {
            return wrong(format!("a skew of {}; use 0 to 2", self.theta));
        }
        let counts = 1..=1 << 16;
        if self.changes > self.reads
            || ![self.reads, self.group].iter().all(|count| counts.contains(count))
        {
            return wrong(
                "a transaction reads 1 to 65,536 pages, changes at most as many, and \
                          commits in a group of 1 to 65,536"
                    .to_owned(),
            );
        }
        if self.read_only_percent > 100 {
            return wrong(format!("{} % of transactions only read", self.read_only_percent));
        }
        if !(self.transactions_per_s > 0.0 && self.transactions_per_s <= 1e9) {
            return wrong(format!("{} transactions a second", self.transactions_per_s));
        }
        let commit = u64::from(self.group) * u64::from(self.changes) * self.redo_bytes;
        if self.redo_capacity_bytes < MIB.max(8 * commit)
            || self.redo_capacity_bytes > MAX_OFFSET / 8
        {
            return wrong(format!(
                "a redo log of {} bytes; use 1 MiB or more, and eight times what a group of \
                 transactions writes ({commit} bytes)",
                self.redo_capacity_bytes
            ));
        }
        if self.scan_bytes > self.data_bytes {
            return wrong(format!("a scan of {} bytes is longer than the table", self.scan_bytes));
        }
        Ok(())
    }
}

/// Regions of the device, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The table's pages.
    pub data: Range<u64>,
    /// The doublewrite area.
    pub doublewrite: Range<u64>,
    /// The redo log, written round and round.
    pub redo: Range<u64>,
    /// The binary log, 1 GiB of it, written round and round: old files are removed.
    pub binlog: Range<u64>,
}

/// The binary log kept: `max_binlog_size` is 1 GiB.
const BINLOG_BYTES: u64 = 1 << 30;
/// The log is written in blocks of this size.
const REDO_BLOCK: u64 = 512;
/// The binary log is a file: pages of the page cache reach the device.
const BINLOG_BLOCK: u64 = 4096;
/// A request after another one of the same moment.
const STEP_NS: u64 = 1000;

/// An endless stream of requests like those of MySQL, on device 0.
pub struct MysqlLoad {
    options: MysqlOptions,
    layout: Layout,
    rng: Rng,
    skew: Skew,
    scatter: Scatter,
    pool: Pool,
    pages: u64,
    ready: VecDeque<Request>,
    now_ns: u64,
    /// When the next transaction begins.
    arrival_ns: f64,
    cleaned_ns: u64,
    /// Bytes ever written to each log.
    redo_end: u64,
    redo_written: u64,
    binlog_end: u64,
    binlog_written: u64,
    doublewrite_at: u64,
    uncommitted: u32,
    /// Pages that left the pool dirty and were not written yet.
    leaving: Vec<u64>,
    /// Rest of a scan: the next page, and the end.
    scan: Range<u64>,
}

impl MysqlLoad {
    /// The load of these parameters.
    ///
    /// # Errors
    /// When they make no sense; the message says which do.
    pub fn new(options: MysqlOptions) -> Result<MysqlLoad> {
        options.check()?;
        let pages = options.data_bytes / options.page_bytes;
        let mut end = 0;
        let mut area = |bytes: u64| {
            let begin = end;
            end = begin + round_up(bytes, MIB);
            begin..begin + bytes
        };
        let layout = Layout {
            data: area(pages * options.page_bytes),
            doublewrite: area(u64::from(options.batch_pages) * options.page_bytes * 2),
            redo: area(round_down(options.redo_capacity_bytes, REDO_BLOCK)),
            binlog: area(BINLOG_BYTES),
        };
        Ok(MysqlLoad {
            rng: Rng::new(options.seed),
            skew: Skew::new(pages, options.theta),
            scatter: Scatter::new(pages, options.seed),
            pool: Pool::new(options.pool_bytes / options.page_bytes),
            layout,
            pages,
            ready: VecDeque::new(),
            now_ns: 0,
            arrival_ns: 0.0,
            cleaned_ns: 0,
            redo_end: 0,
            redo_written: 0,
            binlog_end: 0,
            binlog_written: 0,
            doublewrite_at: 0,
            uncommitted: 0,
            leaving: Vec::new(),
            scan: 0..0,
            options,
        })
    }

    /// The regions of the device.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The smallest device that holds it, in bytes.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        round_up(self.layout.binlog.end, MIB)
    }

    /// Changes that are in the log and not yet in pages on the device, in bytes of the log.
    #[must_use]
    pub fn checkpoint_age_bytes(&self) -> u64 {
        self.redo_end - self.pool.oldest_change().unwrap_or(self.redo_end)
    }

    /// Pages in the pool that wait to be written.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.pool.dirty_pages()
    }

    fn push(&mut self, op: Op, offset: u64, length: u64) {
        let request = Request { time_ns: self.now_ns, offset, length, device: 0, op };
        self.now_ns += STEP_NS;
        self.ready.push_back(request);
    }

    fn read_page(&mut self, page: u64, by_scan: bool) {
        if self.pool.touch(page) {
            return;
        }
        if let Some(evicted) = self.pool.insert(page, by_scan)
            && evicted.dirty
        {
            self.leaving.push(evicted.page);
            // The frame is needed now; the log that describes the page goes first.
            self.write_log();
            self.write_pages();
        }
        self.push(Op::Read, page * self.options.page_bytes, self.options.page_bytes);
    }

    /// One transaction, or a piece of a scan beside it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn step(&mut self) {
        let gap = -(1.0 - self.rng.unit()).ln() / self.options.transactions_per_s;
        self.arrival_ns += gap * 1e9;
        self.now_ns = self.now_ns.max(self.arrival_ns as u64);
        self.transaction();
        self.scan_on();
        self.clean();
    }

    fn transaction(&mut self) {
        let read_only = self.rng.chance(u64::from(self.options.read_only_percent), 100);
        let changes = if read_only { 0 } else { self.options.changes };
        for index in 0..self.options.reads {
            let page = self.scatter.page(self.skew.rank(&mut self.rng));
            self.read_page(page, false);
            if index < changes {
                self.pool.dirty(page, self.redo_end);
                self.redo_end += self.options.redo_bytes;
                self.binlog_end += self.options.binlog_bytes;
            }
        }
        if changes > 0 {
            self.uncommitted += 1;
        }
        if self.uncommitted >= self.options.group {
            self.uncommitted = 0;
            self.write_binlog();
            self.write_log();
        }
    }

    /// Writes the gathered redo log, from the block that holds its last byte on, and flushes it.
    fn write_log(&mut self) {
        if self.redo_written == self.redo_end {
            return;
        }
        let (begin, end) = (self.redo_written, self.redo_end);
        self.append(self.layout.redo.clone(), REDO_BLOCK, begin, end);
        self.redo_written = end;
        self.push(Op::Flush, 0, 0);
    }

    fn write_binlog(&mut self) {
        if self.binlog_written == self.binlog_end {
            return;
        }
        let (begin, end) = (self.binlog_written, self.binlog_end);
        self.append(self.layout.binlog.clone(), BINLOG_BLOCK, begin, end);
        self.binlog_written = end;
        self.push(Op::Flush, 0, 0);
    }

    /// Writes the blocks of an area that is used round and round, of the bytes from `begin` to
    /// `end` of all that were ever written to it.
    fn append(&mut self, area: Range<u64>, block: u64, begin: u64, end: u64) {
        let size = area.end - area.start;
        let (mut at, end) = (round_down(begin, block), round_up(end, block));
        while at < end {
            let within = at % size;
            let length = (end - at).min(size - within);
            self.push(Op::Write, area.start + within, length);
            at += length;
        }
    }

    /// Writes the pages that leave: to the doublewrite area, a flush, to their places, a flush.
    fn write_pages(&mut self) {
        let mut pages = std::mem::take(&mut self.leaving);
        pages.sort_unstable();
        let page_bytes = self.options.page_bytes;
        for batch in pages.chunks(self.options.batch_pages as usize) {
            if self.options.doublewrite {
                let area = self.layout.doublewrite.clone();
                let length = to_u64(batch.len()) * page_bytes;
                if self.doublewrite_at + length > area.end - area.start {
                    self.doublewrite_at = 0;
                }
                self.push(Op::Write, area.start + self.doublewrite_at, length);
                self.doublewrite_at += length;
                self.push(Op::Flush, 0, 0);
            }
            for page in batch {
                self.push(Op::Write, page * page_bytes, page_bytes);
            }
            self.push(Op::Flush, 0, 0);
        }
        pages.clear();
        self.leaving = pages;
    }

    /// Dirty pages go: a few each second, and many when the log has room for no more changes.
    fn clean(&mut self) {
        const SECOND_NS: u64 = 1_000_000_000;
        if self.now_ns - self.cleaned_ns >= SECOND_NS {
            self.cleaned_ns = self.now_ns;
            self.pool.clean_oldest(self.options.clean_pages_per_s as usize, &mut self.leaving);
        }
        // InnoDB flushes hard when the age of the checkpoint reaches seven eighths of the log.
        let capacity = self.options.redo_capacity_bytes;
        if self.checkpoint_age_bytes() > capacity / 8 * 6 {
            while self.checkpoint_age_bytes() > capacity / 2 {
                self.pool.clean_oldest(self.options.batch_pages as usize, &mut self.leaving);
            }
        }
        if !self.leaving.is_empty() {
            self.write_log();
            self.write_pages();
        }
    }

    /// A scan reads an extent of 64 pages beside each transaction.
    fn scan_on(&mut self) {
        const EXTENT: u64 = 64;
        if self.scan.is_empty() {
            let every = self.options.scan_every;
            if every == 0 || !self.rng.chance(1, every) {
                return;
            }
            let length = self.options.scan_bytes / self.options.page_bytes;
            let begin = self.rng.below(self.pages - length + 1);
            self.scan = begin..begin + length;
        }
        let end = self.scan.end.min(self.scan.start + EXTENT);
        for page in self.scan.start..end {
            self.read_page(page, true);
        }
        self.scan.start = end;
    }
}

impl Iterator for MysqlLoad {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.ready.is_empty() {
            self.step();
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests;
