//! Keeps the mark of the write buffer's end young: it lags behind what was acknowledged for a few seconds at most, and
//! nothing is written while it does not lag.

use std::time::Duration;

use crate::buffer::mark;
use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::omf::mark::Mark;
use crate::types::error::VolumeError;

/// How long no other mark is written. With a nap of the maintenance thread it stays below the five seconds that the format
/// promises.
const AGE: Duration = Duration::from_millis(4500);

/// Writes a mark if the last one, or the label's, lags behind, and is old enough.
pub(crate) fn renew(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    let now = shared.options.clock.now();
    if keeper.marked_at.is_some_and(|at| now.since(at) < AGE) {
        return Ok(());
    }
    let end = *shared.durable.lock();
    let known = shared.config.lock().log.durable.unwrap_or_default().max(keeper.mark.end);
    if end.frame <= known.frame {
        return Ok(());
    }
    let next = Mark { number: keeper.mark.number + 1, end };
    let ring = {
        let log = shared.log.lock();
        (log.epoch, log.bytes, log.members.clone())
    };
    keeper.marked_at = Some(now);
    keeper.mark = next;
    let failed = mark::write(io, (ring.0, ring.1, &ring.2), &next);
    shared.take_out(io, &failed)
}
