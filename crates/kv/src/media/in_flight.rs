//! Commands that are under way while the thread that asked for them does something else.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba};
use esker_device::{Command, Completion, Op, QueuePair, Tag};

use crate::media::class::Media;
use crate::media::idle::CommandQueue;
use crate::types::error::Result;

/// Commands of one class under way. Dropping it waits for them.
pub(crate) struct InFlight {
    media: Arc<Media>,
    /// There until it is dropped.
    queue: Option<CommandQueue>,
    /// Commands for which the queue pair had no room.
    waiting: VecDeque<Command>,
    finished: Vec<Completion>,
    /// Reads that nobody wants any more.
    forgotten: Vec<Tag>,
    /// Buffers for commands to come.
    spare: Vec<AlignedBuf>,
    spare_bytes: u64,
    /// As much as there may be of them.
    spare_max: u64,
    last: u64,
}

impl InFlight {
    /// None yet. For those to come it keeps buffers of up to `spare_max` bytes.
    pub(crate) fn new(media: &Arc<Media>, spare_max: u64) -> Result<InFlight> {
        Ok(InFlight::on(CommandQueue::any(media)?, media, spare_max))
    }

    /// The same for reads that can as well be left out: an error where the device has no queue pair to give.
    pub(crate) fn ahead(media: &Arc<Media>, spare_max: u64) -> Result<InFlight> {
        Ok(InFlight::on(CommandQueue::own(media)?, media, spare_max))
    }

    fn on(queue: CommandQueue, media: &Arc<Media>, spare_max: u64) -> InFlight {
        InFlight {
            media: media.clone(),
            queue: Some(queue),
            waiting: VecDeque::new(),
            finished: Vec::new(),
            forgotten: Vec::new(),
            spare: Vec::new(),
            spare_bytes: 0,
            spare_max,
            last: 0,
        }
    }

    /// Those of a class among `all`, or new ones there, with buffers of up to `spare_max` bytes.
    pub(crate) fn of<'a>(
        all: &'a mut Vec<InFlight>,
        media: &Arc<Media>,
        spare_max: u64,
    ) -> Result<&'a mut InFlight> {
        let known = all.iter().position(|it| Arc::ptr_eq(&it.media, media));
        let at = known.unwrap_or(all.len());
        if at == all.len() {
            all.push(InFlight::new(media, spare_max)?);
        }
        Ok(&mut all[at])
    }

    pub(crate) fn media(&self) -> &Arc<Media> {
        &self.media
    }

    /// Bytes of the buffers that it keeps for reads to come.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes
    }

    /// Keeps no more than so many bytes of them from now on.
    pub(crate) fn keep_spare(&mut self, spare_max: u64) {
        self.spare_max = spare_max;
        while self.spare_bytes > spare_max
            && let Some(buf) = self.spare.pop()
        {
            self.spare_bytes -= buf.capacity() as u64;
        }
    }

    /// Begins to read `bytes` bytes from `lba` on.
    pub(crate) fn start(&mut self, lba: Lba, bytes: usize) -> Result<Tag> {
        let buf = self.buffer(bytes);
        self.start_op(Op::Read { lba, buf })
    }

    /// A buffer of the capacity of another one: its content does not depend on which one came back first.
    pub(crate) fn buffer_like(&mut self, other: &AlignedBuf) -> AlignedBuf {
        let capacity = other.capacity();
        self.pooled(capacity, |buf| buf.capacity() == capacity)
    }

    /// A buffer of `bytes` bytes, one that served another command if there is one.
    pub(crate) fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        self.pooled(bytes, |buf| buf.capacity() >= bytes)
    }

    fn pooled(&mut self, bytes: usize, fits: impl Fn(&AlignedBuf) -> bool) -> AlignedBuf {
        let pooled = self.spare.iter().position(fits);
        let mut buf = match pooled {
            Some(at) => self.spare.swap_remove(at),
            None => AlignedBuf::zeroed(bytes),
        };
        self.spare_bytes -= pooled.map_or(0, |_| buf.capacity() as u64);
        buf.set_len(bytes);
        buf
    }

    /// Begins an operation.
    pub(crate) fn start_op(&mut self, op: Op) -> Result<Tag> {
        self.last += 1;
        let tag = Tag(self.last);
        self.waiting.push_back(Command { tag, op });
        self.submit()?;
        Ok(tag)
    }

    /// Waits for any command, and takes its result. None is under way: `None`.
    ///
    /// # Errors
    /// When the queue pair is broken.
    pub(crate) fn next_ended(&mut self) -> Result<Option<Completion>> {
        loop {
            if let Some(done) = self.finished.pop() {
                return Ok(Some(done));
            }
            self.submit()?;
            if self.waiting.is_empty() && queue(&mut self.queue).in_flight() == 0 {
                return Ok(None);
            }
            let count = queue(&mut self.queue).wait(&mut self.finished, None)?;
            assert!(count > 0, "a command that was started is under way");
        }
    }

    fn submit(&mut self) -> Result<()> {
        if !self.waiting.is_empty() {
            queue(&mut self.queue).submit(&mut self.waiting)?;
        }
        Ok(())
    }

    /// Waits for a read, and gives the buffer with the bytes that it has read.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn wait_for(&mut self, tag: Tag) -> Result<AlignedBuf> {
        loop {
            if let Some(at) = self.finished.iter().position(|done| done.tag == tag) {
                let done = self.finished.swap_remove(at);
                done.result?;
                return Ok(done.buf.expect("a read carries a buffer"));
            }
            self.submit()?;
            let count = queue(&mut self.queue).wait(&mut self.finished, None)?;
            assert!(count > 0, "a read that was started is under way");
            for tag in std::mem::take(&mut self.forgotten) {
                self.forget(tag);
            }
        }
    }

    /// The buffer with the bytes of a read, if it has come.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn try_for(&mut self, tag: Tag) -> Result<Option<AlignedBuf>> {
        queue(&mut self.queue).poll(&mut self.finished)?;
        self.submit()?;
        let here = self.finished.iter().any(|done| done.tag == tag);
        if here { self.wait_for(tag).map(Some) } else { Ok(None) }
    }

    /// Lets go of a read, under way or done.
    pub(crate) fn forget(&mut self, tag: Tag) {
        match self.finished.iter().position(|done| done.tag == tag) {
            Some(at) => {
                if let Some(buf) = self.finished.swap_remove(at).buf {
                    self.give_back(buf);
                }
            }
            None => self.forgotten.push(tag),
        }
    }

    /// Takes back a buffer for reads to come, if there is room for it.
    pub(crate) fn give_back(&mut self, buf: AlignedBuf) {
        let bytes = self.spare_bytes + buf.capacity() as u64;
        if bytes <= self.spare_max {
            self.spare.push(buf);
            self.spare_bytes = bytes;
        }
    }
}

fn queue(held: &mut Option<CommandQueue>) -> &mut dyn QueuePair {
    held.as_mut().expect("there until it is dropped").pair()
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while queue(&mut self.queue).in_flight() > 0 {
            // Then it waits when it is dropped, and serves nobody else.
            if !queue(&mut self.queue).wait(&mut done, None).is_ok_and(|count| count > 0) {
                return;
            }
        }
        self.queue.take().expect("there until it is dropped").keep(&self.media);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::types::class::MediaClass;
    use esker_base::Clock;

    #[test]
    fn buffers_for_reads_to_come_are_kept_up_to_a_limit_in_bytes() {
        let (device, tuning) = (testing::device("m"), testing::small_blocks());
        let media =
            Arc::new(Media::new(MediaClass::Capacity, device, &tuning, &Clock::virtual_time()));
        let mut reads = InFlight::new(&media, 1 << 20).unwrap();
        let kept =
            |reads: &InFlight| reads.spare.iter().map(|buf| buf.capacity() as u64).sum::<u64>();
        for bytes in [100_000, 300_000, 700_000].into_iter().cycle().take(60) {
            reads.give_back(AlignedBuf::zeroed(bytes));
            assert!(reads.spare_bytes() <= 1 << 20, "{} bytes", reads.spare_bytes());
            assert_eq!(reads.spare_bytes(), kept(&reads));
        }
        // One of them is used again.
        let before = reads.spare_bytes();
        let tag = reads.start(Lba(0), 64 << 10).unwrap();
        assert!(reads.spare_bytes() < before);
        assert_eq!(reads.spare_bytes(), kept(&reads));
        let buf = reads.wait_for(tag).unwrap();
        reads.give_back(buf);
        assert_eq!(reads.spare_bytes(), before);
    }
}
