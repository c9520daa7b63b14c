//! Records that a caller appends to the log at once, in a frame of their own: changes of the catalogue, long zeroes. They
//! become durable, then visible, before the call returns. Sees `engine` and what is below, and asks maintenance (`keep`)
//! for room. Writes of volumes take another way: `queue`, `commit`.

use crate::buffer::ring::Appended;
use crate::commit;
use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep;
use crate::omf::frame::Record;
use crate::types::error::VolumeError;
use crate::types::id::Seqno;

/// Makes records durable and applies them; all or none of them, if there is a crash.
///
/// `build` is called with the seqno of the first record and says which they are: catalogue changes depend on it.
///
/// A caller that is the keeper passes itself, for it is the keeper who makes room in the log.
pub(crate) fn run<'a>(
    shared: &Shared,
    mut keeper: Option<&mut Keeper>,
    io: &mut Io,
    mut build: impl FnMut(Seqno) -> Result<Vec<Record<&'a [u8]>>, VolumeError>,
) -> Result<Seqno, VolumeError> {
    let mut tries = 0;
    loop {
        let front = commit::hold(shared);
        let mut log = shared.log.lock();
        shared.check_writable(&shared.core.lock())?;
        let first = log.next_seqno();
        let records = build(first)?;
        match log.append(io, &records) {
            Appended::Durable { failed } => {
                *shared.durable.lock() = log.end();
                if !failed.is_empty() {
                    // Before the acknowledgement: the copy that missed this frame must not count after a crash.
                    shared.take_out(io, &failed)?;
                }
                commit::apply(shared, first, &records, std::iter::repeat(0));
                return Ok(first);
            }
            Appended::Lost(why) => {
                drop((log, front));
                return Err(shared.stop(format!("the write buffer failed: {why}")));
            }
            Appended::Full => {
                drop((log, front));
                tries += 1;
                if tries > 16 {
                    let what = "the write buffer cannot be emptied".to_owned();
                    return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
                }
                keep::make_room(shared, keeper.as_deref_mut(), io)?;
            }
        }
    }
}
