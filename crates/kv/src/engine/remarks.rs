//! Remarks for the program that has the KVDB open: each is told once, when it is new
//! ([`Options::on_remark`](crate::Options::on_remark)).

use std::collections::BTreeSet;
use std::time::Duration;

use esker_base::{Clock, Nanos};

use crate::sync::Mutex;
use crate::types::options::Options;
use crate::types::remark::{OnRemark, RemarkLevel};

/// New ones are looked for this often.
const APART: Duration = Duration::from_secs(1);

/// Remarks of a KVDB.
pub(crate) struct Remarks {
    clock: Clock,
    receiver: OnRemark,
    told: Mutex<Told>,
}

/// Remarks that were told so far.
#[derive(Default)]
struct Told {
    texts: BTreeSet<String>,
    /// Whether readers keep much space, which was told: its words change all the time.
    readers: bool,
    last: Option<Nanos>,
}

impl Remarks {
    pub(crate) fn new(options: &Options) -> Remarks {
        let (clock, receiver) = (options.clock.clone(), options.remarks.clone());
        Remarks { clock, receiver, told: Mutex::default() }
    }

    /// Whether somebody wants them.
    pub(crate) fn is_wanted(&self) -> bool {
        self.receiver.is_wanted()
    }

    /// Whether somebody wants them and some time has passed.
    pub(crate) fn is_due(&self) -> bool {
        self.is_wanted() && {
            let (now, last) = (self.clock.now(), self.told.lock().last);
            last.is_none_or(|last| now.since(last) >= APART)
        }
    }

    /// Tells those that are new: of `all`, and that of the readers.
    pub(crate) fn tell(
        &self,
        all: impl Iterator<Item = (RemarkLevel, String)>,
        readers: Option<String>,
    ) {
        let new: Vec<(RemarkLevel, String)> = {
            let mut told = self.told.lock();
            told.last = Some(self.clock.now());
            let of_readers = readers.is_some() && !told.readers;
            told.readers = readers.is_some();
            let mut new: Vec<_> =
                all.filter(|(_, remark)| told.texts.insert(remark.clone())).collect();
            new.extend(readers.filter(|_| of_readers).map(|told| (RemarkLevel::Warning, told)));
            new
        };
        // Without the lock: the receiver may read the KVDB.
        new.iter().for_each(|(level, remark)| self.receiver.tell(*level, remark));
    }
}
