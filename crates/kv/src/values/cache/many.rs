//! Reading several records at once: for cursors, and for callers that get several keys.

use super::RecordCache;
use super::shard::Shard;
pub(crate) use crate::values::cache::record::Sought;
use crate::values::cache::record::{SHARDS, in_shard};

impl RecordCache {
    /// Hands those of the records that are cached to `read`, with their index, shard by shard.
    pub(crate) fn with_many(&self, sought: &[Sought], mut read: impl FnMut(usize, &[u8])) {
        self.look_for(sought, |shard, at| {
            let Sought { hash, address, age } = sought[at];
            if let Some(value) = shard.visit(in_shard(hash), address, age) {
                read(at, value);
            }
        });
    }

    /// Like [`RecordCache::with_many`], but does not count as reading them: for maintenance.
    pub(crate) fn peek_many(&self, sought: &[Sought], mut read: impl FnMut(usize, &[u8])) {
        self.look_for(sought, |shard, at| {
            if let Some(value) = shard.peek(in_shard(sought[at].hash), sought[at].address) {
                read(at, value);
            }
        });
    }

    /// Hands the shard and the index of each of the records to `look`. All of their memory is asked for
    /// first, so that it is waited for once and not for each; and a lock is taken three times, however many
    /// of them are in its shard: whoever takes one waits for all memory that is on its way.
    fn look_for(&self, sought: &[Sought], mut look: impl FnMut(&mut Shard, usize)) {
        let order = in_order_of_shards(sought);
        let of_shards = order.chunk_by(|&a, &b| sought[a].shard() == sought[b].shard());
        let of_shards: Vec<&[usize]> = of_shards.collect();
        let shard = |of_one: &[usize]| &self.shards[sought[of_one[0]].shard()];
        let hash = |at: &usize| in_shard(sought[*at].hash);
        let each = |work: &mut dyn FnMut(&mut Shard, &[usize])| {
            // Those that others have come last: they will have let go of them by then.
            let mut busy = Vec::new();
            for &of_one in &of_shards {
                match shard(of_one).try_lock() {
                    Some(mut shard) => work(&mut shard, of_one),
                    None => busy.push(of_one),
                }
            }
            for of_one in busy {
                work(&mut shard(of_one).lock(), of_one);
            }
        };
        each(&mut |shard, of_one| {
            of_one.iter().map(hash).for_each(|hash| shard.prefetch_entry(hash));
        });
        each(&mut |shard, of_one| {
            of_one.iter().map(hash).for_each(|hash| shard.prefetch_record(hash));
        });
        each(&mut |shard, of_one| of_one.iter().for_each(|&at| look(shard, at)));
    }
}

/// The indexes of the records, those of the first shard first. They are counted and dealt out: that
/// takes a fraction of the time that comparing them would.
fn in_order_of_shards(sought: &[Sought]) -> Vec<usize> {
    let mut ends = [0; SHARDS];
    sought.iter().for_each(|one| ends[one.shard()] += 1);
    let mut end = 0;
    for count in &mut ends {
        end += std::mem::replace(count, end);
    }
    let mut order = vec![0; sought.len()];
    for (index, one) in sought.iter().enumerate() {
        let place = &mut ends[one.shard()];
        order[*place] = index;
        *place += 1;
    }
    order
}
