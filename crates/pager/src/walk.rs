//! Which pages a walk along a table of pointers will want.
//!
//! A program that saves its data walks a hash table: an array of pointers to entries, which point
//! to values. The values lie in no order, so each fault of such a walk looks random. But the table tells which pages
//! come next.
//!
//! [`learn`] takes the addresses of recent faults and searches memory for words that point to them, then for
//! words that point to those, until the words lie in the order of the faults: that is the table,
//! and the way down from it is the [`Shape`]. A [`Walk`] follows the table in front of the program, and has the
//! pages brought in that the words lead to. Pure: memory is behind [`Memory`]. It reads hints, which may be
//! out of date; a wrong one costs a read, and nothing else.

use std::collections::{BTreeMap, VecDeque};

use crate::types::PAGE;

/// Faults that are looked at to learn a shape.
pub(crate) const LEARNED_FROM: usize = 64;
/// Levels of pointers between the table and the faulting object.
const LEVELS: usize = 4;
/// A pointer leads to an object that begins at most so many bytes before the word that is used.
const OBJECT: usize = 64;
/// Bytes of sizes and flags before the address that a pointer names.
const HEADER: usize = 16;
/// Words of a table that one fault and the next may lie apart, in bytes.
const GAP: usize = 4 << 10;
/// Faults in the order of a table before it is believed.
const BELIEVED: usize = 6;
/// Most words that are kept of a level.
const MOST_LINKS: usize = 1024;
/// Most words that are kept of one fault or word that they point to.
const MOST_OF_ONE: usize = 16;
/// Words of a table read at a time.
const WORDS: usize = 128;
/// Words without a pointer before a table is thought to have ended.
const MOST_EMPTY: usize = 16 << 10;
/// Entries of one bucket are followed so far.
const MOST_CHAINED: u8 = 8;
/// A link is tried so often before it is judged.
const TRIED: u32 = 64;
/// Faults in a row that a walk did not foresee, before it looks where the program is; then twice as many.
const LOST: usize = 8;
/// It looks so many words of the table ahead.
const SEARCHED: usize = 64 << 10;
/// It looks at so many at a time.
const SEARCHED_AT_ONCE: usize = 2048;
/// Faults in the table's order that tell where the program is.
const FOUND: usize = 3;
/// It looks in vain so often in a row before the walk is over.
const GIVEN_UP: usize = 3;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// In memory.
    Here,
    /// On its way.
    Coming,
    /// No more can be asked for now.
    Full,
    /// It has no content.
    Never,
}

/// A page that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// An address in it.
    pub(crate) addr: usize,
    /// It will be used once, and leads nowhere.
    pub(crate) is_leaf: bool,
}

/// The memory of the program that walks.
pub(crate) trait Memory {
    /// The addresses that may be pointed to.
    fn region(&self) -> std::ops::Range<usize>;
    /// Has pages brought in, and says where each is.
    fn fetch(&mut self, wants: &[Want]) -> Vec<Near>;
    /// Whether the page of each address is in memory.
    fn is_here(&mut self, addrs: &[usize]) -> Vec<bool>;
    /// Copies ranges, one after the other. Gives how many bytes were copied.
    fn read(&mut self, ranges: &[(usize, usize)], to: &mut Vec<u8>) -> usize;
    /// Shows all that is in memory, in pieces: an address, and the words from there on.
    fn scan(&mut self, each: &mut dyn FnMut(usize, &[u64]));
}

/// The way from a table's word to the address that faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The table's word that led to the last fault.
    pub(crate) at: usize,
    /// Where the next pointer lies in each object on the way, in bytes.
    pub(crate) offsets: Vec<usize>,
    /// Where the fault lies from the last pointer on, in bytes.
    pub(crate) delta: isize,
}

/// A word that points to a fault, or to another such word.
struct Link {
    slot: usize,
    value: usize,
    /// Number of its target: a fault of the first level, a link of the one before otherwise.
    to: usize,
    fault: usize,
}

/// Looks for the table that faults follow, the oldest fault first.
pub(crate) fn learn(memory: &mut impl Memory, faults: &[usize]) -> Option<Shape> {
    let mut levels: Vec<Vec<Link>> = Vec::new();
    let mut found: Vec<(usize, Shape)> = Vec::new();
    for level in 0..LEVELS {
        let targets: Vec<(usize, usize, usize)> = match levels.last() {
            None => faults.iter().enumerate().map(|(n, &fault)| (fault, n, n)).collect(),
            Some(links) => {
                links.iter().enumerate().map(|(n, link)| (link.slot, n, link.fault)).collect()
            }
        };
        let links = links_to(memory, targets, if level == 0 { HEADER } else { 0 });
        if links.is_empty() {
            break;
        }
        levels.push(links);
        found.extend(shape_of(&levels, faults));
    }
    let most = found.iter().map(|(hits, _)| *hits).max()?;
    // The way to a value passes objects that fault as well: the longest way explains them too, but
    // not one that only passes another entry of the same kind first.
    let likely: Vec<Shape> = found
        .into_iter()
        .filter(|(hits, _)| hits * 4 >= most * 3)
        .map(|(_, shape)| shape)
        .collect();
    let is_chained = |shape: &Shape| {
        let same = |other: &Shape| {
            let is_same_table = other.at.abs_diff(shape.at) <= 2 * GAP;
            other.offsets == shape.offsets[1..] && other.delta == shape.delta && is_same_table
        };
        !shape.offsets.is_empty() && likely.iter().any(same)
    };
    likely.iter().rev().find(|shape| !is_chained(shape)).cloned()
}

/// The words in memory that point to targets. A target is an address, its number, and the number of its fault.
fn links_to(
    memory: &mut impl Memory,
    mut targets: Vec<(usize, usize, usize)>,
    header: usize,
) -> Vec<Link> {
    targets.sort_unstable();
    let region = memory.region();
    let (mut links, mut counts) = (Vec::new(), vec![0usize; targets.len()]);
    let Some((&(first, ..), &(last, ..))) = targets.first().zip(targets.last()) else {
        return links;
    };
    let span = first.saturating_sub(OBJECT).max(region.start)..=last + header;
    memory.scan(&mut |addr, words| {
        for (n, &word) in words.iter().enumerate() {
            let Ok(value) = usize::try_from(word) else { continue };
            if !span.contains(&value) || header == 0 && !value.is_multiple_of(8) {
                continue;
            }
            let from = targets.partition_point(|(addr, ..)| addr + header < value);
            let near = targets[from..].iter().take_while(|(addr, ..)| *addr < value + OBJECT);
            for (count, &(_, to, fault)) in counts[from..].iter_mut().zip(near) {
                if *count < MOST_OF_ONE && links.len() < MOST_LINKS {
                    *count += 1;
                    links.push(Link { slot: addr + n * 8, value, to, fault });
                }
            }
        }
    });
    links
}

/// The shape that the last level's words tell, if many lie in the order of their faults, and how many do.
fn shape_of(levels: &[Vec<Link>], faults: &[usize]) -> Option<(usize, Shape)> {
    let links = levels.last()?;
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_unstable_by_key(|&n| (links[n].fault, links[n].slot));
    // The longest chain that ends with each link, and the link before.
    let mut chains: Vec<(usize, Option<usize>)> = Vec::with_capacity(order.len());
    for (at, &n) in order.iter().enumerate() {
        let link = &links[n];
        let is_before = |&before: &usize| {
            let other = &links[order[before]];
            other.fault < link.fault && other.slot < link.slot && link.slot - other.slot <= GAP
        };
        let best = (0..at).filter(is_before).max_by_key(|&before| chains[before].0);
        chains.push((best.map_or(1, |before| chains[before].0 + 1), best));
    }
    let end = (0..order.len()).max_by_key(|&at| chains[at].0)?;
    let mut votes: BTreeMap<(Vec<usize>, isize), usize> = BTreeMap::new();
    let mut next = Some(end);
    while let Some(at) = next {
        *votes.entry(way(levels, order[at], faults)).or_default() += 1;
        next = chains[at].1;
    }
    let ((offsets, delta), hits) = votes.into_iter().max_by_key(|(_, hits)| *hits)?;
    let shape = Shape { at: links[order[end]].slot, offsets, delta };
    (hits >= BELIEVED).then_some((hits, shape))
}

/// The offsets on the way from a link of the last level to its fault, and where that lies.
fn way(levels: &[Vec<Link>], link: usize, faults: &[usize]) -> (Vec<usize>, isize) {
    let (mut offsets, mut at) = (Vec::new(), link);
    for level in (1..levels.len()).rev() {
        let link = &levels[level][at];
        offsets.push(levels[level - 1][link.to].slot - link.value);
        at = link.to;
    }
    let link = &levels[0][at];
    (offsets, faults[link.to].cast_signed() - link.value.cast_signed())
}

/// Next step on one way.
#[derive(Clone, Copy)]
struct Item {
    addr: usize,
    /// How many pointers lie behind it; the last one points to the page that faults.
    level: usize,
    /// Which of the table's pointers it comes from, by its number and its address.
    index: u64,
    slot: usize,
    /// The offset of the link to the next object of a bucket, if it came by one, and how many before.
    link: Option<usize>,
    chained: u8,
}

/// A walk along a table, in front of the program.
pub(crate) struct Walk {
    shape: Shape,
    /// The table's next word.
    next: usize,
    /// How many of the table's pointers were followed.
    made: u64,
    /// How many of them the program has followed, and where the last one lies.
    reached: u64,
    reached_slot: usize,
    /// How many of them may be followed before the program does.
    window: u64,
    empty: usize,
    items: VecDeque<Item>,
    /// The pages that were asked for, and the first pointer that wanted each.
    expected: BTreeMap<usize, (u64, usize)>,
    order: VecDeque<(u64, usize)>,
    /// How often a link at each offset was tried, and led to another object of the same kind.
    links: [(u32, u32); OBJECT / 8],
    /// The last faults that were not foreseen, and how many there were in a row.
    strange: VecDeque<usize>,
    unforeseen: usize,
    /// It looks where the program is when there were so many; and how often it has done so in vain.
    patience: usize,
    vain: usize,
}

impl Walk {
    /// Goes on where a shape was learned, at most `window` pointers in front. The program has had
    /// some faults since, of which these were the last.
    pub(crate) fn new(shape: Shape, window: usize, since: &[usize]) -> Walk {
        let mut walk = Walk {
            next: shape.at + 8,
            reached_slot: shape.at,
            shape,
            made: 0,
            reached: 0,
            window: window as u64,
            empty: 0,
            items: VecDeque::new(),
            expected: BTreeMap::new(),
            order: VecDeque::new(),
            links: [(0, 0); OBJECT / 8],
            strange: VecDeque::new(),
            unforeseen: 0,
            patience: LOST,
            vain: 0,
        };
        since.iter().for_each(|&addr| walk.fault(addr));
        walk.unforeseen = walk.unforeseen.min(LOST);
        walk
    }

    /// Notes a fault of the program.
    pub(crate) fn fault(&mut self, addr: usize) {
        if let Some(&(index, slot)) = self.expected.get(&(addr / PAGE)) {
            if index >= self.reached {
                (self.reached, self.reached_slot) = (index, slot);
            }
            (self.unforeseen, self.patience, self.vain) = (0, LOST, 0);
            while let Some(&(index, page)) = self.order.front()
                && index + self.window < self.reached
            {
                self.order.pop_front();
                if self.expected.get(&page).is_some_and(|(other, _)| *other == index) {
                    self.expected.remove(&page);
                }
            }
            return;
        }
        if self.strange.len() == LEARNED_FROM {
            self.strange.pop_front();
        }
        self.strange.push_back(addr);
        self.unforeseen += 1;
    }

    /// The last faults that it did not foresee, if those are too many for it to go on.
    pub(crate) fn failed(&self) -> Option<Vec<usize>> {
        (self.vain >= GIVEN_UP).then(|| self.strange.iter().copied().collect())
    }

    /// Looks where the program is: ahead of its known position, for words that lead to its last faults.
    fn locate(&mut self, memory: &mut impl Memory) {
        let mut leaves: Vec<(usize, usize)> = Vec::new();
        let (mut slot, mut seen) = (self.reached_slot, 0);
        while seen < SEARCHED {
            let end = slot + SEARCHED_AT_ONCE * 8;
            let mut ways = self.words_between(memory, slot, end);
            for &offset in &self.shape.offsets {
                ways = next_on_ways(memory, &ways, offset);
            }
            let leaf =
                |way: &(usize, usize)| (way.0.wrapping_add_signed(self.shape.delta) / PAGE, way.1);
            leaves.extend(ways.iter().map(leaf));
            leaves.sort_unstable();
            if let Some(found) = self.place_in(&leaves) {
                (self.next, self.reached_slot, self.reached) = (found + 8, found, self.made);
                self.items.clear();
                (self.unforeseen, self.patience, self.empty, self.vain) = (0, LOST, 0, 0);
                return;
            }
            (slot, seen) = (end, seen + SEARCHED_AT_ONCE);
        }
        self.patience = self.unforeseen * 2;
        self.vain += 1;
    }

    /// The pointers of a part of the table that is in memory, each with its slot.
    fn words_between(
        &self,
        memory: &mut impl Memory,
        from: usize,
        end: usize,
    ) -> Vec<(usize, usize)> {
        let mut pages: Vec<(usize, usize)> = Vec::new();
        let mut at = from;
        while at < end {
            let next = ((at / PAGE + 1) * PAGE).min(end);
            pages.push((at, next - at));
            at = next;
        }
        let region = memory.region();
        read_here(memory, &pages)
            .into_iter()
            .flat_map(|(addr, bytes)| {
                let found: Vec<_> =
                    words(&bytes).enumerate().map(|(n, word)| (word, addr + n * 8)).collect();
                found
            })
            .filter(|(word, _)| region.contains(word))
            .collect()
    }

    /// The slot of the last fault, if several of the last ones lie in the order of the table.
    fn place_in(&self, leaves: &[(usize, usize)]) -> Option<usize> {
        let mut chains: Vec<(usize, usize, usize)> = Vec::new();
        for (fault, addr) in self.strange.iter().enumerate() {
            let page = addr / PAGE;
            let from = leaves.partition_point(|(other, _)| *other < page);
            let before = chains.len();
            for &(_, slot) in leaves[from..].iter().take_while(|(other, _)| *other == page) {
                let leads = |chain: &&(usize, usize, usize)| {
                    chain.0 < fault && chain.1 < slot && slot - chain.1 <= GAP
                };
                let best = chains[..before].iter().filter(leads).map(|chain| chain.2).max();
                chains.push((fault, slot, best.unwrap_or(0) + 1));
            }
        }
        let (_, slot, length) =
            chains.into_iter().max_by_key(|(fault, _, length)| (*length, *fault))?;
        (length >= FOUND).then_some(slot)
    }

    /// Whether it waits for nothing but the program.
    pub(crate) fn is_idle(&self) -> bool {
        self.items.is_empty() && (self.is_full() || self.has_ended())
    }

    fn is_full(&self) -> bool {
        self.made >= self.reached + self.window
    }

    fn has_ended(&self) -> bool {
        self.empty >= MOST_EMPTY
    }

    /// Follows pointers as far as it may, and as far as pages are in memory.
    pub(crate) fn go_on(&mut self, memory: &mut impl Memory) {
        if self.unforeseen >= self.patience {
            self.locate(memory);
        }
        self.fill(memory);
        while self.advance(memory) {}
    }

    /// Reads the table.
    fn fill(&mut self, memory: &mut impl Memory) {
        let mut bytes = Vec::new();
        while !self.is_full() && !self.has_ended() && (self.items.len() as u64) < 4 * self.window {
            let want = Want { addr: self.next, is_leaf: false };
            match memory.fetch(&[want])[0] {
                Near::Here => {}
                Near::Coming | Near::Full => return,
                Near::Never => {
                    // Pages of a table that were never used.
                    self.next = (self.next / PAGE + 1) * PAGE;
                    self.empty += PAGE / 8;
                    continue;
                }
            }
            let size = (PAGE - self.next % PAGE).min(WORDS * 8);
            bytes.clear();
            if memory.read(&[(self.next, size)], &mut bytes) < size {
                self.empty = MOST_EMPTY;
                return;
            }
            let first = self.next;
            self.next += size;
            let region = memory.region();
            for (n, word) in words(&bytes).enumerate() {
                if !region.contains(&word) {
                    self.empty += 1;
                    continue;
                }
                self.empty = 0;
                let (level, index, slot) = (0, self.made, first + n * 8);
                self.items.push_back(Item {
                    addr: word,
                    level,
                    index,
                    slot,
                    link: None,
                    chained: 0,
                });
                self.made += 1;
            }
        }
    }

    /// The bytes of an object that are looked at.
    fn size_of(&self, item: &Item) -> usize {
        self.shape.offsets[item.level] + 16
    }

    /// Looks at all items once. True when something new is to be looked at.
    fn advance(&mut self, memory: &mut impl Memory) -> bool {
        let items: Vec<Item> = self.items.drain(..).collect();
        let last = self.shape.offsets.len();
        let mut wants = Vec::with_capacity(items.len() * 2);
        for item in &items {
            let is_leaf = item.level == last;
            let addr =
                if is_leaf { item.addr.wrapping_add_signed(self.shape.delta) } else { item.addr };
            wants.push(Want { addr, is_leaf });
            let end = if is_leaf { addr } else { item.addr + self.size_of(item) - 1 };
            if end / PAGE != addr / PAGE {
                wants.push(Want { addr: end, is_leaf });
            }
        }
        let near = memory.fetch(&wants);
        let mut at = 0;
        let mut ranges = Vec::new();
        let mut read = Vec::new();
        for item in items {
            let is_leaf = item.level == last;
            let addr = wants[at].addr;
            let mut state = near[at];
            at += 1;
            if !is_leaf && (addr + self.size_of(&item) - 1) / PAGE != addr / PAGE {
                state = if state == Near::Here { near[at] } else { state };
                at += 1;
            }
            match state {
                Near::Never => {}
                Near::Full => self.items.push_back(item),
                Near::Coming if !is_leaf => self.items.push_back(item),
                Near::Here | Near::Coming if is_leaf => self.expect(addr / PAGE, item),
                Near::Here | Near::Coming => {
                    ranges.push((addr, self.size_of(&item)));
                    read.push(item);
                }
            }
        }
        if read.is_empty() {
            return false;
        }
        let mut bytes = Vec::new();
        let got = memory.read(&ranges, &mut bytes);
        let region = memory.region();
        let (mut from, mut beside) = (0, Vec::new());
        for (item, (_, size)) in read.iter().zip(&ranges) {
            if from + size > got {
                break;
            }
            self.follow(item, &bytes[from..from + size], &region, &mut beside);
            from += size;
        }
        memory.fetch(&beside);
        true
    }

    /// An object's content: its pointers lead on.
    fn follow(
        &mut self,
        item: &Item,
        bytes: &[u8],
        region: &std::ops::Range<usize>,
        beside: &mut Vec<Want>,
    ) {
        let offset = self.shape.offsets[item.level];
        let word = |at: usize| {
            let word = bytes.get(at..at + 8)?.try_into().ok()?;
            usize::try_from(u64::from_ne_bytes(word)).ok().filter(|word| region.contains(word))
        };
        let next = word(offset);
        if let Some(link) = item.link {
            let (tried, right) = &mut self.links[link / 8 % (OBJECT / 8)];
            *tried += 1;
            *right += u32::from(next.is_some());
        }
        let Some(next) = next else { return };
        let chained = item.chained;
        self.items.push_back(Item { addr: next, level: item.level + 1, link: None, ..*item });
        for at in (0..bytes.len() - 7).step_by(8).filter(|&at| at != offset) {
            let Some(other) = word(at) else { continue };
            let (tried, right) = self.links[at / 8 % (OBJECT / 8)];
            let leads = tried < TRIED || right * 16 >= tried;
            let is_chain = item.level == 0 && other.is_multiple_of(8) && chained < MOST_CHAINED;
            if is_chain && leads {
                let (link, chained) = (Some(at), chained + 1);
                self.items.push_back(Item { addr: other, link, chained, ..*item });
            } else {
                // A key, or something else that is used together with it.
                beside.push(Want { addr: other, is_leaf: false });
            }
        }
    }

    fn expect(&mut self, page: usize, item: Item) {
        if let std::collections::btree_map::Entry::Vacant(free) = self.expected.entry(page) {
            free.insert((item.index, item.slot));
            self.order.push_back((item.index, page));
        }
    }
}

/// Reads those ranges, each within a page, whose pages are in memory.
fn read_here(memory: &mut impl Memory, ranges: &[(usize, usize)]) -> Vec<(usize, Vec<u8>)> {
    let addrs: Vec<usize> = ranges.iter().map(|(addr, _)| *addr).collect();
    let here = memory.is_here(&addrs);
    let here: Vec<(usize, usize)> =
        ranges.iter().zip(here).filter_map(|(range, here)| here.then_some(*range)).collect();
    let mut bytes = Vec::new();
    let got = memory.read(&here, &mut bytes);
    let mut rest = &bytes[..got];
    let mut found = Vec::with_capacity(here.len());
    for (addr, size) in here {
        let Some((now, later)) = rest.split_at_checked(size) else { break };
        found.push((addr, now.to_vec()));
        rest = later;
    }
    found
}

/// The pointers at an offset of objects that are in memory; each way keeps its slot.
fn next_on_ways(
    memory: &mut impl Memory,
    ways: &[(usize, usize)],
    offset: usize,
) -> Vec<(usize, usize)> {
    let is_whole = |addr: usize| addr % PAGE <= PAGE - 8;
    let ways: Vec<(usize, usize)> = ways
        .iter()
        .map(|(addr, slot)| (addr + offset, *slot))
        .filter(|way| is_whole(way.0))
        .collect();
    let ranges: Vec<(usize, usize)> = ways.iter().map(|(addr, _)| (*addr, 8)).collect();
    let (found, region) = (read_here(memory, &ranges), memory.region());
    let mut found = found.into_iter().peekable();
    let mut next = Vec::with_capacity(ways.len());
    for (addr, slot) in ways {
        if let Some((_, bytes)) = found.next_if(|(other, _)| *other == addr)
            && let Some(word) = words(&bytes).next()
            && region.contains(&word)
        {
            next.push((word, slot));
        }
    }
    next
}

fn words(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| usize::try_from(u64::from_ne_bytes(*word)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
