//! Writes not flushed: completed writes that a controller may still forget.
//!
//! A controller with a volatile write cache that ends takes unflushed writes with it. So the
//! content of each completed write is kept until a flush has covered it, and written again through
//! the controller that comes next ([`Multipath::restore`](super::multipath::Multipath)). Data that was not
//! kept, or cannot be written again, is *lost*: until those LBAs are written anew, reads of them
//! fail, and so does every flush, through every queue pair. One that is shared by several users, as
//! it is in layers above, thus cannot tell one of them and answer the next one with success.
//!
//! Invariants
//! 1. Extents do not overlap. Each has the content of the last write that completed there.
//! 2. An extent stays until a flush through its controller has completed that was sent after it, or
//!    a write over it has completed. A write in flight does not end it: until it has completed, a
//!    flush has to make the content before it durable.
//! 3. While an extent is *moving*, being written again, no write over it is sent.
//! 4. An extent under a write in flight through a controller that lives is not written again: the
//!    copy could come after the write. Once that write has completed there is no such extent.

use std::collections::BTreeMap;

use esker_base::Lba;
use esker_base::units::{to_u64, to_usize};
use esker_device::PlacementId;

/// The most bytes in an extent: a write over part of it copies the rest.
const EXTENT: usize = 64 << 10;
/// Memory of an extent beside its content, in bytes.
const OVERHEAD: u64 = 128;
/// Memory of extents whose content is not kept, in bytes at most.
const UNKEPT: u64 = 1 << 20;
/// Number of lost ranges that are told apart, at most.
const LOST: usize = 4096;

/// A controller, from when it was connected until it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControllerId {
    /// Index of its path.
    pub(crate) path: usize,
    pub(crate) generation: u64,
}

/// Content that a write has left on its LBAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Data(Vec<u8>, Option<PlacementId>),
    Zeroes,
    /// It was not kept.
    Unkept,
}

/// Data of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    Data(&'a [u8], Option<PlacementId>),
    Zeroes,
}

/// A piece of an extent that is written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) lba: u64,
    pub(crate) count: u64,
    pub(crate) content: Content,
}

/// Result of noting a write that a controller has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is kept; `is_filling` when a flush would be good.
    Yes { is_filling: bool },
    /// There is no room: it is complete when a flush has that is sent after this number.
    Full(u64),
    /// The controller is lost, and the write, too, perhaps: it has to be sent again.
    Stale,
}

/// Whether a flush may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    Yes,
    /// Another write has to be completed first.
    Later,
    /// Something has to be written again first, or flushed through another controller.
    Restore,
    /// It would have to cover lost data.
    Lost(String),
}

struct Extent {
    count: u64,
    content: Content,
    by: ControllerId,
    /// Its number among the writes that have completed.
    number: u64,
    is_moving: bool,
}

struct InFlight {
    lba: u64,
    count: u64,
    by: ControllerId,
}

/// A write in flight.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

/// Completed writes that are not flushed.
pub(crate) struct Unflushed {
    lba_size: u64,
    /// The most bytes; zero when no content is kept.
    limit: u64,
    /// LBAs of an extent with data at most.
    piece: u64,
    bytes: u64,
    extents: BTreeMap<u64, Extent>,
    moving: usize,
    in_flight: BTreeMap<u64, InFlight>,
    tickets: u64,
    /// Writes that have completed.
    number: u64,
    /// First LBAs of the lost ranges, and the LBA behind each.
    lost: BTreeMap<u64, u64>,
}

impl Unflushed {
    /// Keeps up to `limit` bytes of a namespace that takes writes of `max_transfer_size`.
    pub(crate) fn new(lba_size: u32, max_transfer_size: u32, limit: u64) -> Unflushed {
        let most = max_transfer_size.min(u32::try_from(EXTENT).unwrap_or(u32::MAX));
        Unflushed {
            lba_size: lba_size.into(),
            limit,
            piece: u64::from(most / lba_size).max(1),
            bytes: 0,
            extents: BTreeMap::new(),
            moving: 0,
            in_flight: BTreeMap::new(),
            tickets: 0,
            number: 0,
            lost: BTreeMap::new(),
        }
    }

    /// A write is to be sent to a controller; `None` when it has to wait.
    pub(crate) fn begin(&mut self, lba: u64, count: u64, by: ControllerId) -> Option<Ticket> {
        if self.moving > 0 && self.over(lba, lba + count).any(|(_, extent)| extent.is_moving) {
            return None;
        }
        self.tickets += 1;
        self.in_flight.insert(self.tickets, InFlight { lba, count, by });
        Some(Ticket(self.tickets))
    }

    /// A write is not in flight any more: it has failed, or its connection is lost.
    pub(crate) fn end(&mut self, Ticket(ticket): &Ticket) {
        self.in_flight.remove(ticket);
    }

    /// A controller has completed a write, with force unit access if it `is_durable`. Unless it is
    /// kept, it is in flight still.
    pub(crate) fn complete(
        &mut self,
        Ticket(ticket): &Ticket,
        written: Written<'_>,
        is_durable: bool,
        is_live: impl Fn(ControllerId) -> bool,
    ) -> Kept {
        let Some(&InFlight { lba, count, by }) = self.in_flight.get(ticket) else {
            return Kept::Stale;
        };
        if !is_live(by) {
            return Kept::Stale;
        }
        self.number += 1;
        if !is_durable && self.bytes + self.cost(&written, count) > self.most() {
            return Kept::Full(self.number);
        }
        self.in_flight.remove(ticket);
        self.remove(lba, lba + count);
        self.find(lba, count);
        if !is_durable {
            self.keep(lba, count, written, by);
        }
        Kept::Yes { is_filling: self.bytes > self.most() / 2 }
    }

    /// A write for which there was no room is durable now.
    pub(crate) fn written_through(&mut self, Ticket(ticket): &Ticket) {
        if let Some(InFlight { lba, count, .. }) = self.in_flight.remove(ticket) {
            self.find(lba, count);
        }
    }

    fn most(&self) -> u64 {
        if self.limit == 0 { UNKEPT } else { self.limit }
    }

    fn cost(&self, written: &Written<'_>, count: u64) -> u64 {
        match written {
            Written::Data(data, _) if self.limit > 0 => {
                to_u64(data.len()) + count.div_ceil(self.piece) * OVERHEAD
            }
            _ => OVERHEAD,
        }
    }

    fn keep(&mut self, lba: u64, count: u64, written: Written<'_>, by: ControllerId) {
        let number = self.number;
        let extent = |count, content| Extent { count, content, by, number, is_moving: false };
        match written {
            Written::Data(data, placement) if self.limit > 0 => {
                let size = to_usize(self.piece * self.lba_size);
                for (index, part) in (0..).zip(data.chunks(size)) {
                    let content = Content::Data(part.to_vec(), placement);
                    let count = to_u64(part.len()) / self.lba_size;
                    self.insert(lba + index * self.piece, extent(count, content));
                }
            }
            Written::Zeroes if self.limit > 0 => self.insert(lba, extent(count, Content::Zeroes)),
            _ => {
                // Sequential writes are one extent.
                let before = self.extents.range_mut(..lba).next_back();
                match before.filter(|(first, before)| {
                    **first + before.count == lba && before.by == by && !before.is_moving
                }) {
                    Some((_, before)) => {
                        (before.count, before.number) = (before.count + count, number);
                    }
                    None => self.insert(lba, extent(count, Content::Unkept)),
                }
            }
        }
    }

    fn size(extent: &Extent) -> u64 {
        OVERHEAD
            + match &extent.content {
                Content::Data(data, _) => to_u64(data.len()),
                Content::Zeroes | Content::Unkept => 0,
            }
    }

    fn insert(&mut self, lba: u64, extent: Extent) {
        self.bytes += Unflushed::size(&extent);
        self.moving += usize::from(extent.is_moving);
        self.extents.insert(lba, extent);
    }

    fn take(&mut self, lba: u64) -> Option<Extent> {
        let extent = self.extents.remove(&lba)?;
        self.bytes -= Unflushed::size(&extent);
        self.moving -= usize::from(extent.is_moving);
        Some(extent)
    }

    /// Extents that have LBAs from `start` to before `end`.
    fn over(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Extent)> {
        let before = self.extents.range(..start).next_back();
        let first = before.filter(|(lba, extent)| *lba + extent.count > start);
        first.into_iter().chain(self.extents.range(start..end)).map(|(lba, extent)| (*lba, extent))
    }

    /// Lets an extent end, and another one begin, at an LBA.
    fn split(&mut self, at: u64) {
        let before = self.extents.range(..at).next_back();
        let Some((&lba, _)) = before.filter(|(lba, extent)| *lba + extent.count > at) else {
            return;
        };
        let Some(mut first) = self.take(lba) else { return };
        let size = to_usize((at - lba) * self.lba_size);
        let content = match &mut first.content {
            Content::Data(data, placement) => {
                let rest = data.split_off(size);
                data.shrink_to_fit();
                Content::Data(rest, *placement)
            }
            Content::Zeroes => Content::Zeroes,
            Content::Unkept => Content::Unkept,
        };
        let Extent { by, number, is_moving, .. } = first;
        let count = lba + first.count - at;
        first.count = at - lba;
        self.insert(lba, first);
        self.insert(at, Extent { count, content, by, number, is_moving });
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        while let Some((&lba, _)) = self.extents.range(start..end).next() {
            self.take(lba);
        }
    }

    // ---- flushes ----

    /// The number of the last write that has completed: a flush that is sent now covers it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a flush through a controller may be sent that has to cover all writes up to `number`.
    pub(crate) fn is_clear(
        &mut self,
        number: u64,
        through: ControllerId,
        is_live: impl Fn(ControllerId) -> bool,
    ) -> Clear {
        if let Some(what) = self.lost() {
            return Clear::Lost(what);
        }
        let is_in_the_way = |extent: &&Extent| {
            extent.by != through && (extent.number <= number || extent.is_moving)
        };
        if !self.extents.values().any(|extent| is_in_the_way(&extent)) {
            return Clear::Yes;
        }
        self.split_at_writes(&is_live);
        let mut clear = Clear::Yes;
        for (&lba, extent) in &self.extents {
            if !is_in_the_way(&extent) {
                continue;
            }
            if is_live(extent.by) || self.is_free(lba, extent, &is_live) {
                return Clear::Restore;
            }
            clear = Clear::Later;
        }
        clear
    }

    /// A flush has completed that was sent to a controller when `number` was the last write.
    pub(crate) fn flushed(&mut self, number: u64, through: ControllerId) {
        let (mut bytes, gone) = (0, |extent: &Extent| {
            extent.by == through && extent.number <= number && !extent.is_moving
        });
        self.extents.retain(|_, extent| {
            let is_gone = gone(extent);
            bytes += if is_gone { Unflushed::size(extent) } else { 0 };
            !is_gone
        });
        self.bytes -= bytes;
    }

    /// The controllers that live, beside one, with writes up to `number`.
    pub(crate) fn others(
        &self,
        number: u64,
        beside: ControllerId,
        is_live: impl Fn(ControllerId) -> bool,
    ) -> Vec<ControllerId> {
        let mut others = Vec::new();
        for Extent { by, number: its, .. } in self.extents.values() {
            if *by != beside && *its <= number && !others.contains(by) && is_live(*by) {
                others.push(*by);
            }
        }
        others
    }

    // ---- writing again ----

    /// Whether something has to be written again: a controller is lost.
    pub(crate) fn has_orphans(&mut self, is_live: impl Fn(ControllerId) -> bool) -> bool {
        if self.extents.values().all(|extent| is_live(extent.by)) {
            return false;
        }
        self.split_at_writes(&is_live);
        let mut extents = self.extents.iter();
        extents.any(|(&lba, extent)| {
            !is_live(extent.by) && (extent.is_moving || self.is_free(lba, extent, &is_live))
        })
    }

    /// Whether something is being written again.
    pub(crate) fn is_moving(&self) -> bool {
        self.moving > 0
    }

    /// Whether an extent can be written again: nobody does, and no write over it is in flight.
    fn is_free(&self, lba: u64, extent: &Extent, is_live: impl Fn(ControllerId) -> bool) -> bool {
        let end = lba + extent.count;
        let is_over = |one: &InFlight| one.lba < end && lba < one.lba + one.count;
        !extent.is_moving && !self.in_flight.values().any(|one| is_over(one) && is_live(one.by))
    }

    fn split_at_writes(&mut self, is_live: impl Fn(ControllerId) -> bool) {
        let live = self.in_flight.values().filter(|one| is_live(one.by));
        let edges: Vec<_> = live.flat_map(|one| [one.lba, one.lba + one.count]).collect();
        edges.into_iter().for_each(|edge| self.split(edge));
    }

    /// Takes some of the extents that have to be written again, up to about `most` bytes. Data that
    /// was not kept is lost from now on.
    pub(crate) fn take_orphans(
        &mut self,
        most: u64,
        is_live: impl Fn(ControllerId) -> bool,
    ) -> Vec<Piece> {
        self.split_at_writes(&is_live);
        let mut orphans = Vec::new();
        let (mut bytes, mut unkept) = (0, Vec::new());
        for (&lba, extent) in &self.extents {
            if bytes >= most {
                break;
            }
            if is_live(extent.by) || !self.is_free(lba, extent, &is_live) {
                continue;
            }
            let Extent { count, content, .. } = extent;
            if *content == Content::Unkept {
                unkept.push((lba, *count));
                continue;
            }
            bytes += Unflushed::size(extent);
            orphans.push(Piece { lba, count: *count, content: content.clone() });
        }
        for (lba, count) in unkept {
            self.lose(lba, count);
        }
        for piece in &orphans {
            if let Some(extent) = self.extents.get_mut(&piece.lba) {
                extent.is_moving = true;
                self.moving += 1;
            }
        }
        orphans
    }

    /// A piece is written again through a controller; or not, and is to be tried anew.
    pub(crate) fn moved(&mut self, piece: &Piece, to: Option<ControllerId>) {
        self.number += 1;
        let number = self.number;
        // Parts of it may have been discarded.
        for (_, extent) in self.extents.range_mut(piece.lba..piece.lba + piece.count) {
            if std::mem::take(&mut extent.is_moving) {
                self.moving -= 1;
                if let Some(by) = to {
                    (extent.by, extent.number) = (by, number);
                }
            }
        }
    }

    // ---- lost data ----

    /// The content of these LBAs is lost.
    pub(crate) fn lose(&mut self, lba: u64, count: u64) {
        self.remove(lba, lba + count);
        let (mut start, mut end) = (lba, lba + count);
        // Together with the ranges that it touches.
        while let Some((&first, &behind)) = self.lost.range(..=end).next_back()
            && behind >= start
        {
            self.lost.remove(&first);
            (start, end) = (start.min(first), end.max(behind));
        }
        self.lost.insert(start, end);
        if self.lost.len() > LOST {
            // Too many to be told apart: the LBAs between the first two count as lost.
            let first = self.lost.pop_first().map(|(start, _)| start);
            if let (Some(first), Some((_, behind))) = (first, self.lost.pop_first()) {
                self.lost.insert(first, behind);
            }
        }
    }

    /// These LBAs have content again, or need none: they are not lost any more.
    pub(crate) fn find(&mut self, lba: u64, count: u64) {
        if self.lost.is_empty() {
            return;
        }
        let end = lba + count;
        while let Some((&first, &behind)) = self.lost.range(..end).next_back()
            && behind > lba
        {
            self.lost.remove(&first);
            if first < lba {
                self.lost.insert(first, lba);
            }
            if behind > end {
                self.lost.insert(end, behind);
            }
            if first < lba {
                break;
            }
        }
    }

    /// Returns the message about all lost data, if there is any.
    pub(crate) fn lost(&self) -> Option<String> {
        let (&start, &end) = self.lost.first_key_value()?;
        Some(lost(start, end, self.lost.iter().map(|(start, end)| end - start).sum()))
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the message for a reader of these LBAs, if some of them are lost.
    pub(crate) fn lost_in(&self, Lba(lba): Lba, count: u64) -> Option<String> {
        let (&start, &end) = self.lost.range(..lba + count).next_back()?;
        (end > lba).then(|| lost(start, end, end - start))
    }
}

fn lost(start: u64, end: u64, count: u64) -> String {
    format!(
        "{count} LBAs that were written and not flushed are lost (the first are {start} to {}): the \
         target has been lost with its volatile write cache; write them again, or open the device \
         anew and check what it holds",
        end - 1
    )
}

#[cfg(test)]
mod tests;
