//! Tally of a campaign, to be printed at its end.

use std::fmt;
use std::time::Duration;

use esker_kv::Stats;

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) cases: u64,
    pub(crate) lives: u64,
    /// How often each operation was done, in the order of the table.
    pub(crate) operations: Vec<u64>,
    pub(crate) images: u64,
    pub(crate) checks: u64,
    /// Commands that were hit, and lives that ended for it.
    pub(crate) faults: u64,
    pub(crate) fault_ends: u64,
    pub(crate) closes: u64,
    pub(crate) crashes: u64,
    /// Acknowledged writes that a crash took, as it may.
    pub(crate) lost_writes: u64,
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) expired: u64,
    pub(crate) no_space: u64,
    pub(crate) log_flushes: u64,
    /// Compactions that were called off.
    pub(crate) called_off: u64,
    /// Staging classes that were taken away.
    pub(crate) removals: u64,
    /// Ingests, spills, compactions, collections, splits; blocks of values that ingests wrote.
    pub(crate) maintenance: [u64; 6],
}

impl Tally {
    /// Adds the work of an open KVDB that is about to end.
    pub(crate) fn add(&mut self, stats: &Stats) {
        let done = &stats.maintenance;
        self.log_flushes += done.log_flushes;
        let steps = [done.ingests, done.spills, done.compactions, done.collections, done.splits];
        let steps = steps.into_iter().chain([done.young_blocks]);
        self.maintenance.iter_mut().zip(steps).for_each(|(sum, steps)| *sum += steps);
        self.committed += stats.transactions.committed;
        self.conflicts += stats.transactions.conflicts;
        self.expired += stats.transactions.expired;
    }

    /// The figures, for a campaign that took `span`.
    pub(crate) fn report(&self, names: &[&str], span: Duration) -> String {
        let mut text = format!("{self}\n{:.2} hours\noperations:", span.as_secs_f64() / 3600.0);
        for (name, count) in names.iter().zip(&self.operations) {
            text += &format!(" {name} {count},");
        }
        text.trim_end_matches(',').into()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { cases, lives, images, checks, faults, fault_ends, closes, crashes, .. } = self;
        let operations: u64 = self.operations.iter().sum();
        let [ingests, spills, compactions, collections, splits, young] = self.maintenance;
        writeln!(f, "{cases} cases, {lives} lives, {operations} operations")?;
        writeln!(f, "{images} crash images, {crashes} crashes lived on from, {closes} closes")?;
        writeln!(f, "{} acknowledged writes lost within the window", self.lost_writes)?;
        writeln!(f, "{faults} commands failed or corrupted, {fault_ends} lives ended by them")?;
        let (committed, conflicts, expired) = (self.committed, self.conflicts, self.expired);
        writeln!(f, "{committed} transactions, {conflicts} conflicts, {expired} expired")?;
        let (no_space, removals) = (self.no_space, self.removals);
        writeln!(
            f,
            "{no_space} times no space, {removals} times no staging, {checks} offline checks"
        )?;
        write!(
            f,
            "{} log flushes, {ingests} ingests, {spills} spills, {compactions} compactions, \
             {collections} collections, {splits} splits, {young} young blocks",
            self.log_flushes
        )
    }
}
