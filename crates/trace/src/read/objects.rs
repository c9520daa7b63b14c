//! Objects of caches as places on a device: one unit of address each, whatever their size.
//!
//! Objects whose number is a place in the lower half of a device keep it; others are numbered above.

use std::hash::{BuildHasher, Hasher};

use esker_base::units::{human_bytes, to_u64};
use hashbrown::HashMap;

use crate::keys::KeyHasher;
use crate::request::{MAX_OFFSET, Op, Request};

/// The identity of an object.
#[derive(Clone, Copy)]
pub(crate) enum Object<'a> {
    /// A number, which may be a place.
    Number(u64),
    /// A word, known by a hash of 64 bits.
    Word(&'a [u8]),
}

impl<'a> Object<'a> {
    /// A number where the text is one.
    pub(crate) fn of(text: &'a [u8]) -> Object<'a> {
        match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(number) if text.iter().all(u8::is_ascii_digit) => Object::Number(number),
            _ => Object::Word(text),
        }
    }
}

/// The objects of a trace, their places, and the sizes that it names.
pub(crate) struct Objects {
    unit: u64,
    ids: HashMap<u64, u64, KeyHasher>,
    sizes: Sizes,
}

/// Sizes that a trace names.
#[derive(Default)]
struct Sizes {
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Objects {
    pub(crate) fn new(unit: u64) -> Objects {
        Objects { unit, ids: HashMap::with_hasher(KeyHasher), sizes: Sizes::default() }
    }

    /// The request for an object; `size` is what the trace says of it, in bytes.
    pub(crate) fn request(
        &mut self,
        time_ns: u64,
        op: Op,
        object: Object<'_>,
        size: Option<u64>,
        device: u32,
    ) -> Result<Request, String> {
        let half = MAX_OFFSET / 2 / self.unit;
        let place = match object {
            Object::Number(number) if number < half => number,
            Object::Number(number) => self.place(half, number)?,
            Object::Word(word) => {
                let mut hasher = KeyHasher.build_hasher();
                hasher.write_u64(to_u64(word.len()));
                hasher.write(word);
                self.place(half, hasher.finish())?
            }
        };
        let offset = place.checked_mul(self.unit).ok_or("there are too many objects")?;
        let request = Request::checked(time_ns, op, offset, self.unit, device)?;
        if let Some(size) = size {
            self.sizes.add(size);
        }
        Ok(request)
    }

    fn place(&mut self, half: u64, key: u64) -> Result<u64, String> {
        let next = half + to_u64(self.ids.len());
        self.ids.try_reserve(1).map_err(|_| {
            format!("no memory is left for the places of {} objects", self.ids.len())
        })?;
        Ok(*self.ids.entry(key).or_insert(next))
    }

    /// Says how objects and their sizes count, if the trace names sizes.
    pub(crate) fn remark(&self) -> Option<String> {
        let Sizes { count, sum, least, most } = self.sizes;
        if count == 0 || (least == self.unit && most == self.unit) {
            return None;
        }
        let mean = u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX);
        Some(format!(
            "sizes of objects do not count: each object is one unit of {}; the trace names sizes from {} to {}, {} a \
             request on average. Another unit can be named",
            human_bytes(self.unit),
            human_bytes(least),
            human_bytes(most),
            human_bytes(mean)
        ))
    }
}

impl Sizes {
    fn add(&mut self, size: u64) {
        self.least = if self.count == 0 { size } else { self.least.min(size) };
        self.most = self.most.max(size);
        self.sum += u128::from(size);
        self.count += 1;
    }
}
