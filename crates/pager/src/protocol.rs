//! The messages between a program and its pager.
//!
//! A thread of the program asks by memory alone. It writes a [`Request`] and reads its *doorbell*, a page that is
//! always missing: the fault wakes the pager, which reads the request and answers by giving the page content. The thread
//! takes the answer and drops the page again. So requests need no descriptor that a program might close, work in forked
//! children at once, and sleep in the kernel.
//!
//! A *helper* process, which shares the program's memory, introduces it to the pager ([`Hello`]). From then on the
//! pager sends it an [`HelperOrder`] over their socket, and it answers with an [`Outcome`].
//!
//! The first pages of a region are no memory for programs:
//!
//! | page | contents |
//! | --- | --- |
//! | 0 | never there: shows whether a process is alive |
//! | 1 | the doorbell of a forked child's helper, which asks for its token |
//! | 2 to 63 | doorbells of threads |
//! | 64 to 127 | the window: pages that have left, until the pager has copied them |
//! | 128 … | memory |

use crate::types::{CHUNK, Page};

/// The page that is never there.
pub const GUARD: Page = 0;
/// The doorbell of a forked child's helper: it takes no request, and its answer is the [`Hello::token`].
pub const JOIN: Page = 1;
/// The first doorbell of threads.
pub const FIRST_DOORBELL: Page = 2;
/// The first page of the window, behind the doorbells; it has one page for each of an [`HelperOrder`].
pub const WINDOW: Page = 64;
/// The first page for programs.
pub const FIRST_PAGE: Page = 128;

/// The first word of a [`Hello`]; the last digit is the version.
pub const MAGIC: u64 = 0x6573_6b65_7250_6702;

/// First message of a helper. It carries descriptors: the program's userfaultfd, unless it is a forked child's helper,
/// and then the program's pidfd.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// The program's process, as the program calls it.
    pub pid: u64,
    /// Where its region begins.
    pub base: u64,
    /// Bytes of its region.
    pub size: u64,
    /// Where its requests lie, one for each doorbell.
    pub requests: u64,
    /// The answer of the doorbell [`JOIN`] if it is a forked child, else 0.
    pub token: u64,
}

/// Operations of a request.
pub mod op {
    /// Reserves `b` bytes; the answer is their address. With `a`, exactly there.
    pub const RESERVE: u64 = 1;
    /// Drops the content of `b` bytes at `a`.
    pub const DISCARD: u64 = 2;
    /// Ends the reservation of `b` bytes at `a`, whose content is dropped.
    pub const RELEASE: u64 = 3;
    /// Process `a` is about to exit. The answer comes when its pager has shown its figures, if it wants to.
    pub const EXIT: u64 = 4;
}

/// A request, read by the pager when the doorbell is rung.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Which of its doorbell: a thread that is interrupted rings again.
    pub serial: u64,
    /// One of [`op`].
    pub op: u64,
    /// See there.
    pub a: u64,
    /// See there.
    pub b: u64,
}

/// The words of an answer: an error number or 0, and the value.
pub const ANSWER_WORDS: usize = 512;

/// Pages that are to leave. The window is emptied first, also by an order without pages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HelperOrder {
    /// How many pages there are, or [`HelperOrder::PART`].
    pub count: u64,
    /// So many of them, the first ones, are moved to the window, each to the page of its index.
    pub moves: u64,
    /// Those from there to this one are moved too if they can be, and otherwise dropped. The others are dropped.
    pub tries: u64,
    /// Their addresses.
    pub pages: [u64; CHUNK],
}

impl HelperOrder {
    /// A count: the pager ends. The region becomes unreachable, and the helper ends.
    pub const PART: u64 = u64::MAX;
    /// A count: the helper makes a system call in the program's memory. [`HelperOrder::moves`] is its number, the first pages
    /// are its arguments, and [`Outcome::done`] is its result.
    pub const CALL: u64 = u64::MAX - 1;

    /// An order without pages.
    #[must_use]
    pub fn empty() -> HelperOrder {
        HelperOrder { count: 0, moves: 0, tries: 0, pages: [0; CHUNK] }
    }

    /// An order to make a system call.
    #[must_use]
    pub(crate) fn call(number: i64, args: [usize; 6]) -> HelperOrder {
        let mut order = HelperOrder::empty();
        (order.count, order.moves) = (HelperOrder::CALL, number.cast_unsigned());
        order.pages.iter_mut().zip(args).for_each(|(to, arg)| *to = arg as u64);
        order
    }
}

/// Result of an [`HelperOrder`], a bit for each page. A page with none of them is in use by the kernel, and stays.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It has left.
    pub done: u64,
    /// It was not there.
    pub gone: u64,
    /// Its memory may not be written, or not be dropped.
    pub barred: u64,
}
