//! Reads of a caller that has nothing else to do: fetches, run to their end.

use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_usize;

use crate::drive::Io;
use crate::segment::fetch::{Answer, Fetches, Sum};
use crate::space::Chunks;

/// How long drives are waited for before what is late is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// Bytes of a segment that are wanted.
pub(crate) struct Want<'a> {
    pub(crate) chunks: &'a Arc<Chunks>,
    pub(crate) sector: u32,
    pub(crate) size: usize,
    pub(crate) sum: Sum,
}

/// `size` bytes from `sector` on that verify, and the drives that had them wrong or not at all.
pub(crate) fn read_verified(
    io: &mut Io,
    chunks: &Arc<Chunks>,
    sector: u32,
    size: usize,
    sum: Sum,
) -> Answer {
    read_many(io, &[Want { chunks, sector, size, sum }]).pop().expect("an answer for each")
}

/// Reads much, with all commands in flight at once; an answer for each, in order.
pub(crate) fn read_many(io: &mut Io, wants: &[Want<'_>]) -> Vec<Answer> {
    let lanes = &mut io.lanes;
    let fleet = lanes.fleet().clone();
    let now = || fleet.moment();
    let unit = fleet.layout.unit_size();
    let mut fetches = Fetches::default();
    let begin = now();
    let mut open = None;
    for (tag, Want { chunks, sector, size, sum }) in (0..).zip(wants) {
        let open_one =
            open.get_or_insert_with(|| fetches.want(0, chunks, *sector, *size, *sum, tag));
        let is_first = open_one.parts()[0].tag == tag;
        if !is_first && !open_one.extend(unit, chunks, *sector, *size, *sum, tag) {
            let next = fetches.want(0, chunks, *sector, *size, *sum, tag);
            fetches.start(lanes, begin, std::mem::replace(open_one, next), None);
        }
    }
    if let Some(open) = open {
        fetches.start(lanes, begin, open, None);
    }
    let mut answers: Vec<Option<Answer>> = wants.iter().map(|_| None).collect();
    let mut arrived = Vec::new();
    loop {
        while let Some(fetched) = fetches.take_ended() {
            for (number, part) in fetched.parts().iter().enumerate() {
                let answer = fetched.part(number);
                let answer = answer.map(|(bytes, bad)| (bytes.to_vec(), bad.to_vec()));
                answers[to_usize(part.tag.into())] = Some(answer.map_err(Clone::clone));
            }
            fetches.put_back(fetched);
        }
        if fetches.count() == 0 {
            break;
        }
        lanes.push();
        let due = fetches.hedge(lanes, now);
        let limit = due.map_or(LOOK, |due| due.since(fleet.clock.now()).min(LOOK));
        lanes.wait(&mut arrived, limit);
        for arrival in arrived.drain(..) {
            fetches.arrive(lanes, arrival);
        }
    }
    lanes.push();
    answers.into_iter().map(|answer| answer.expect("every fetch has ended")).collect()
}
