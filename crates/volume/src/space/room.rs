//! How many segments fit drives of different sizes.

use esker_base::units::to_u64;

/// Which drives count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// Those that are not being emptied: what volumes can hold goes by them.
    Stay,
    /// Those that new segments may be put on now.
    Used,
}

/// The room on some drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// How many have slots.
    pub(crate) drives: usize,
    /// How many segments of the pool's width fit, or of as many chunks as there are drives.
    pub(crate) segments: u64,
}

impl Room {
    /// That on drives with so many slots each.
    pub(crate) fn of(slots: &[u64], width: u16) -> Room {
        let slots: Vec<u64> = slots.iter().copied().filter(|slots| *slots > 0).collect();
        Room { drives: slots.len(), segments: segments_in(&slots, width.into()) }
    }
}

/// How many segments of this width fit drives with so many slots: chunks of a segment lie on different drives.
pub(super) fn segments_in(slots: &[u64], width: usize) -> u64 {
    let width = width.min(slots.len());
    if width == 0 {
        return 0;
    }
    // The largest s with the sum of min(slots, s) at least width × s.
    let fits = |s: u64| slots.iter().map(|&f| f.min(s)).sum::<u64>() >= to_u64(width) * s;
    let (mut low, mut high) = (0, slots.iter().sum::<u64>() / to_u64(width));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most segments that can be placed: one after the other on the drives with the most slots left.
    fn placed(slots: &[u64], width: usize) -> u64 {
        let (mut slots, mut count) = (slots.to_vec(), 0);
        let width = width.min(slots.len());
        loop {
            slots.sort_unstable_by(|a, b| b.cmp(a));
            if width == 0 || slots[width - 1] == 0 {
                return count;
            }
            slots[..width].iter_mut().for_each(|slots| *slots -= 1);
            count += 1;
        }
    }

    #[test]
    fn as_many_segments_are_counted_as_can_be_placed() {
        let mut rng = esker_base::Rng::new(1);
        for _ in 0..500 {
            let drives = rng.below(7);
            let slots: Vec<u64> = (0..drives).map(|_| rng.below(40)).collect();
            let width = usize::try_from(1 + rng.below(5)).unwrap();
            assert_eq!(segments_in(&slots, width), placed(&slots, width), "{slots:?} {width}");
        }
    }

    #[test]
    fn drives_without_slots_make_no_segment_wider() {
        assert_eq!(Room::of(&[10, 0, 10], 3), Room { drives: 2, segments: 10 });
        assert_eq!(Room::of(&[], 3), Room { drives: 0, segments: 0 });
    }
}
