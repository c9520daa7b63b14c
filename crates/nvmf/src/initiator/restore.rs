//! Writing again the data that a lost controller may have forgotten, before anything else goes
//! through the one that comes next; and flushing through those that live beside it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::{AlignedBuf, Nanos};

use super::link::drain;
use super::multipath::{Active, Multipath};
use super::unflushed::{Content, ControllerId, Piece, Unflushed};
use crate::conn::Payload;
use crate::error::NvmfError;
use crate::wire::capsule::Sqe;
use crate::wire::command::{LbaRange, io};

/// Bytes that are written again before the next look at the rest.
const BATCH: u64 = 4 << 20;
/// How often a write is tried again that the target asks to be, and the pause before.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// Pause between looks whether another queue pair has written its pieces again.
const LOOK: Duration = Duration::from_millis(1);

impl Multipath {
    /// Whether a controller is that of its path still.
    pub(crate) fn is_live(&self, controller: ControllerId) -> bool {
        self.paths[controller.path].generation() == controller.generation
    }

    /// Writes again, through this connection, the unflushed data of lost controllers, and hands the
    /// connection back. With a number it also flushes the writes up to that one through the
    /// controllers beside it that have completed some. Data that the target refuses is lost.
    pub(crate) fn restore(
        &self,
        mut active: Active,
        flush: Option<u64>,
        deadline: Nanos,
        cancelled: &AtomicBool,
    ) -> Result<Active, NvmfError> {
        let Some(unflushed) = &self.unflushed else { return Ok(active) };
        let is_told = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        loop {
            let over = match () {
                () if !self.is_current(&active) => Some("its controller was lost"),
                () if is_told(&self.is_stopping) || is_told(cancelled) => Some("nobody waits"),
                () if self.clock.now() >= deadline => Some("writing again took too long"),
                () => None,
            };
            if let Some(what) = over {
                let error = NvmfError::Lost { peer: active.link.peer, what: what.to_owned() };
                return Err(self.unfit(active, &[], error));
            }
            let (pieces, is_moving) = self.with(unflushed, |unflushed| {
                let pieces = unflushed.take_orphans(BATCH, |one| self.is_live(one));
                (pieces, unflushed.is_moving())
            });
            if !pieces.is_empty() {
                active.link.deadline = Some(deadline);
                let written = self.write_again(&mut active, &pieces);
                active.link.deadline = None;
                match written {
                    Ok(refused) => self.with(unflushed, |unflushed| {
                        for (piece, is_refused) in pieces.iter().zip(refused) {
                            match is_refused {
                                true => unflushed.lose(piece.lba, piece.count),
                                false => unflushed.moved(piece, Some(active.controller())),
                            }
                        }
                    }),
                    Err(error) => return Err(self.unfit(active, &pieces, error)),
                }
            } else if is_moving {
                self.clock.sleep(LOOK);
            } else if !self.flush_beside(&active, flush, deadline) {
                return Ok(active);
            }
        }
    }

    /// Runs `act` on the unflushed writes, and notes whether something is lost.
    pub(crate) fn with<T>(
        &self,
        unflushed: &esker_base::sync::Mutex<Unflushed>,
        act: impl FnOnce(&mut Unflushed) -> T,
    ) -> T {
        let mut unflushed = unflushed.lock();
        let done = act(&mut unflushed);
        self.has_lost.store(unflushed.has_lost(), Ordering::Relaxed);
        done
    }

    /// A connection is of no use. Writes through it may be repeated elsewhere when nothing comes
    /// through it any more.
    fn unfit(&self, active: Active, pieces: &[Piece], error: NvmfError) -> NvmfError {
        self.release(&active);
        match &error {
            NvmfError::Command { status, .. } => self.refused(active.path, *status),
            _ if pieces.is_empty() => {}
            _ => self.give_up(active.path, active.generation, &error),
        }
        if let Some(stream) = active.link.stream.into_tcp() {
            drain(&stream, &self.clock, self.config.keep_alive * 2);
        }
        if let Some(unflushed) = &self.unflushed {
            let mut unflushed = unflushed.lock();
            pieces.iter().for_each(|piece| unflushed.moved(piece, None));
        }
        error
    }

    /// Writes pieces; says of each whether the target has refused it.
    fn write_again(&self, active: &mut Active, pieces: &[Piece]) -> Result<Vec<bool>, NvmfError> {
        let peer = active.link.peer;
        let mut refused = vec![false; pieces.len()];
        let mut todo: Vec<usize> = (0..pieces.len()).collect();
        for attempt in 0..=ATTEMPTS {
            let commands: Vec<(usize, Sqe, Payload)> = todo
                .iter()
                .flat_map(|&index| self.commands(&pieces[index]).map(move |(s, p)| (index, s, p)))
                .collect();
            let indexes: Vec<usize> = commands.iter().map(|(index, ..)| *index).collect();
            let commands = commands.into_iter().map(|(_, sqe, payload)| (sqe, payload));
            let statuses = active.link.execute_all("writing again", commands)?;
            todo.clear();
            for (index, status) in indexes.into_iter().zip(statuses) {
                if status.is_path_error() {
                    return Err(NvmfError::Command { peer, command: "Write", status });
                }
                if !status.is_success() && status.may_retry() && attempt < ATTEMPTS {
                    todo.push(index);
                } else if !status.is_success() {
                    refused[index] = true;
                }
            }
            todo.dedup();
            if todo.is_empty() {
                break;
            }
            self.clock.sleep(PAUSE);
        }
        Ok(refused)
    }

    /// The commands that write a piece.
    fn commands(&self, piece: &Piece) -> impl Iterator<Item = (Sqe, Payload)> {
        let most = match piece.content {
            Content::Data(..) => piece.count,
            _ => self.zeroes_at_once(),
        };
        let &Piece { lba, count, .. } = piece;
        let content = piece.content.clone();
        let step = usize::try_from(most).unwrap_or(usize::MAX);
        (0..count).step_by(step).map(move |at| {
            let slba = lba + at;
            let part = most.min(count - at);
            match &content {
                Content::Data(data, placement) => {
                    let range = LbaRange {
                        slba,
                        count: u32::try_from(part).expect("an extent is small"),
                        fua: false,
                        placement: *placement,
                    };
                    let sqe = range.put(Sqe::new(io::WRITE, self.config.nsid));
                    let mut buf = AlignedBuf::zeroed(data.len());
                    buf.copy_from_slice(data);
                    (sqe, Payload::Out(buf))
                }
                _ => self.zeroes(slba, part, false),
            }
        })
    }

    /// Flushes writes up to a number through the controllers that live beside that of a connection;
    /// says whether a look at the rest is due.
    fn flush_beside(&self, active: &Active, flush: Option<u64>, deadline: Nanos) -> bool {
        let (Some(unflushed), Some(number)) = (&self.unflushed, flush) else { return false };
        let beside = active.controller();
        let others = unflushed.lock().others(number, beside, |one| self.is_live(one));
        let mut is_due = false;
        for other in others {
            let path = &self.paths[other.path];
            let opened = path.open_queue(&self.config, &self.clock, 1, deadline);
            let (mut link, qid, generation) = match opened {
                Ok(opened) => opened,
                Err(NvmfError::Unusable { .. }) => continue, // it has no queue to give
                Err(error) => {
                    self.give_up(other.path, other.generation, &error);
                    is_due = true;
                    continue;
                }
            };
            let number = unflushed.lock().number();
            let sqe = Sqe::new(io::FLUSH, self.config.nsid);
            let flushed = link.execute("Flush", sqe, Payload::None);
            path.close_queue(qid, generation);
            match flushed {
                Ok(_) => unflushed.lock().flushed(number, ControllerId { generation, ..other }),
                Err(NvmfError::Command { .. }) => {}
                Err(error) => {
                    self.give_up(other.path, generation, &error);
                    is_due = true;
                }
            }
        }
        is_due
    }
}
