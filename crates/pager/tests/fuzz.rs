//! Random programs on arenas, against a copy of all content that is not paged.
//!
//! `ESKER_SEED=N` runs one seed; `ESKER_SOAK=SECONDS` goes on with new ones for so long:
//! `ESKER_SOAK=3600 cargo test --release -p esker-pager --test fuzz -- --nocapture`.

#![allow(unsafe_code)]

mod support;

use std::io::{Read, Write};
use std::time::Duration;

use esker_base::{Clock, Rng};
use esker_pager::{Arena, Mode, PAGE};
use support::{Child, Failing, Slow, below, in_child};

const BUDGET: usize = 4 << 20;
const SLOW: usize = 24 << 20;
/// The device has room for snapshots.
const DEVICE: usize = 96 << 20;

struct Program<'a> {
    arena: &'a Arena,
    failing: &'a Failing,
    rng: Rng,
    regions: Vec<(Slow<'a>, Vec<u8>)>,
    children: Vec<Child>,
    may_fork: bool,
}

impl Program<'_> {
    fn step(&mut self) {
        match self.rng.below(100) {
            0..6 => self.allocate(),
            6..9 => self.free(),
            9..12 => self.point(),
            12..40 => self.write(),
            40..70 => self.read(),
            70..76 => self.scan(),
            76..82 => self.discard(),
            82..90 => self.read_then_write(),
            90..96 => self.system_call(),
            96..97 if self.rng.chance(1, 3) => self.fork(),
            97..98 => self.reap(),
            98..99 => self.failing.fail_writes(3),
            _ => {}
        }
    }

    fn reserved(&self) -> usize {
        self.regions.iter().map(|(memory, _)| memory.len()).sum()
    }

    fn allocate(&mut self) {
        let most = if self.rng.chance(1, 4) { 1500 } else { 64 };
        // Smaller ones come from slabs, which may have been used before.
        let pages = 5 + below(&mut self.rng, most);
        let size = pages * PAGE;
        if self.reserved() + size > SLOW / 8 * 7 {
            return;
        }
        let memory = Slow::new(self.arena, size);
        self.regions.push((memory, vec![0; size]));
    }

    fn free(&mut self) {
        if self.regions.len() > 3 {
            let at = below(&mut self.rng, self.regions.len());
            drop(self.regions.swap_remove(at));
        }
    }

    /// A region, and a range of it.
    fn range(&mut self, most: usize) -> Option<(usize, usize, usize)> {
        if self.regions.is_empty() {
            return None;
        }
        let at = below(&mut self.rng, self.regions.len());
        let len = self.regions[at].1.len();
        let offset = below(&mut self.rng, len);
        let size = 1 + below(&mut self.rng, most.min(len - offset));
        Some((at, offset, size))
    }

    fn write(&mut self) {
        let Some((at, offset, size)) = self.range(3 * PAGE) else { return };
        let (memory, shadow) = &mut self.regions[at];
        self.rng.fill(&mut shadow[offset..offset + size]);
        memory.slice(offset, size).copy_from_slice(&shadow[offset..offset + size]);
    }

    /// Writes addresses of a region in no order, to be walked along by a child.
    fn point(&mut self) {
        let Some((at, offset, _)) = self.range(1) else { return };
        let Some((to, ..)) = self.range(1) else { return };
        let (base, pages) = (self.regions[to].0.addr(), self.regions[to].1.len() / PAGE);
        let (memory, shadow) = &mut self.regions[at];
        let first = offset.next_multiple_of(8).min(shadow.len());
        let words = (8 * pages).min((shadow.len() - first) / 8);
        for n in 0..words {
            let target = base + below(&mut self.rng, pages) * PAGE;
            shadow[first + n * 8..][..8].copy_from_slice(&target.to_ne_bytes());
        }
        let size = words * 8;
        memory.slice(first, size).copy_from_slice(&shadow[first..first + size]);
    }

    /// Follows every word that is an address, in order.
    fn walks_right(&self) -> bool {
        self.regions.iter().all(|(memory, shadow)| {
            (0..shadow.len() / 8).all(|n| {
                let expected = &shadow[n * 8..][..8];
                let word = usize::from_ne_bytes(expected.try_into().expect("eight bytes"));
                let holds =
                    |memory: &Slow| (memory.addr()..memory.addr() + memory.len()).contains(&word);
                let Some((target, behind)) = self.regions.iter().find(|(memory, _)| holds(memory))
                else {
                    return true;
                };
                let offset = word - target.addr();
                memory.slice(n * 8, 8) == expected && target.slice(offset, 1)[0] == behind[offset]
            })
        })
    }

    fn read(&mut self) {
        let Some((at, offset, size)) = self.range(3 * PAGE) else { return };
        let (memory, shadow) = &self.regions[at];
        check(memory, shadow, offset, size);
    }

    fn scan(&mut self) {
        let Some((at, ..)) = self.range(1) else { return };
        let (backwards, stride) = (self.rng.chance(1, 2), 1 + below(&mut self.rng, 4));
        let (memory, shadow) = &self.regions[at];
        let pages = memory.len() / PAGE;
        for n in (0..pages).step_by(stride) {
            let page = if backwards { pages - 1 - n } else { n };
            let range = page * PAGE..(page + 1) * PAGE;
            check(memory, shadow, range.start, PAGE);
        }
    }

    fn discard(&mut self) {
        let Some((at, offset, _)) = self.range(1) else { return };
        let (memory, shadow) = &mut self.regions[at];
        let first = offset / PAGE * PAGE;
        let pages = 1 + below(&mut self.rng, (shadow.len() - first) / PAGE);
        memory.discard(first, pages * PAGE);
        shadow[first..first + pages * PAGE].fill(0);
    }

    fn read_then_write(&mut self) {
        let Some((at, offset, size)) = self.range(PAGE) else { return };
        let (memory, shadow) = &mut self.regions[at];
        let bytes = memory.slice(offset, size);
        assert!(bytes == &shadow[offset..offset + size]);
        bytes[0] ^= 0x55;
        shadow[offset] ^= 0x55;
    }

    /// Through a pipe, from one place to another.
    fn system_call(&mut self) {
        let Some((from, at, size)) = self.range(PAGE) else { return };
        let Some((to, target, _)) = self.range(1) else { return };
        let size = size.min(self.regions[to].1.len() - target);
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let bytes = self.regions[from].1[at..at + size].to_vec();
        let (source, place) = (&self.regions[from].0, &self.regions[to].0);
        if !self.may_fork {
            // By signal: system calls need the pages in memory.
            let touched = source.slice(at, size).to_vec();
            writer.write_all(&touched).unwrap();
            let mut got = vec![0; size];
            reader.read_exact(&mut got).unwrap();
            place.slice(target, size).copy_from_slice(&got);
        } else {
            writer.write_all(source.slice(at, size)).unwrap();
            reader.read_exact(place.slice(target, size)).unwrap();
        }
        self.regions[to].1[target..target + size].copy_from_slice(&bytes);
    }

    fn is_right(&self) -> bool {
        self.regions.iter().all(|(memory, shadow)| {
            (0..shadow.len())
                .step_by(PAGE)
                .all(|offset| memory.slice(offset, PAGE) == &shadow[offset..offset + PAGE])
        })
    }

    fn fork(&mut self) {
        if !self.may_fork || self.children.len() > 1 {
            return;
        }
        let seed = self.rng.u64();
        let (regions, this) = (&self.regions, &*self);
        self.children.push(in_child(|| {
            let mut rng = Rng::new(seed);
            let mut is_right = this.walks_right();
            for _ in 0..200 {
                if regions.is_empty() {
                    break;
                }
                let (memory, shadow) = &regions[below(&mut rng, regions.len())];
                let page = below(&mut rng, shadow.len() / PAGE) * PAGE;
                let bytes = memory.slice(page, PAGE);
                is_right &= bytes == &shadow[page..page + PAGE];
            }
            is_right &= this.is_right();
            // The child's writes are its own.
            for (memory, _) in regions {
                for page in (0..memory.len()).step_by(PAGE) {
                    memory.slice(page, 8).fill(0xee);
                }
            }
            for (memory, shadow) in regions {
                for page in (0..memory.len()).step_by(PAGE) {
                    is_right &= memory.slice(page, 8).iter().all(|&b| b == 0xee);
                    is_right &= memory.slice(page + 8, PAGE - 8) == &shadow[page + 8..page + PAGE];
                }
            }
            is_right
        }));
    }

    fn reap(&mut self) {
        for child in self.children.drain(..) {
            let reports = self.arena.reports();
            assert_eq!(child.status(), 0, "a child saw something else; {reports:?}");
        }
    }
}

/// Reports a difference, and where it is.
#[track_caller]
fn check(memory: &Slow, shadow: &[u8], offset: usize, size: usize) {
    let (found, expected) = (memory.slice(offset, size), &shadow[offset..offset + size]);
    let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) else { return };
    let (addr, end) = (memory.addr() + offset + at, size.min(at + 16));
    panic!("at {addr:#x}: {:?} and not {:?}", &found[at..end], &expected[at..end]);
}

fn run(seed: u64, steps: usize, mode: Mode) -> bool {
    let Some(options) = support::options(BUDGET, SLOW) else { return false };
    let (device, failing) = support::failing(DEVICE);
    let arena = Arena::new(device, options, 0, mode).unwrap();
    let mut program = Program {
        arena: &arena,
        failing: &failing,
        rng: Rng::new(seed),
        regions: Vec::new(),
        children: Vec::new(),
        may_fork: mode == Mode::Handler,
    };
    for _ in 0..steps {
        program.step();
    }
    program.reap();
    assert!(program.is_right(), "seed {seed}");
    drop(program);
    let stats = arena.stats();
    assert_eq!((stats.vanished_pages, stats.poisoned_pages), (0, 0), "seed {seed}: {stats:?}");
    true
}

#[test]
fn random_programs_find_what_they_wrote() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("ESKER_SEED") {
        run(seed, 5000, Mode::Handler);
        run(seed, 5000, Mode::Signal);
        return;
    }
    let (clock, span) = (Clock::real(), Duration::from_secs(number("ESKER_SOAK").unwrap_or(10)));
    let began = clock.now();
    let mut seed = 0;
    while clock.now().since(began) < span {
        for mode in [Mode::Handler, Mode::Signal] {
            println!("seed {seed}, {mode:?}");
            if !run(seed, 1000, mode) {
                return;
            }
        }
        seed += 1;
    }
}
