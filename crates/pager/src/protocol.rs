//! The messages between a program and its pager.
//!
//! A program connects to the pager's socket once, and hands over its userfaultfd ([`Hello`]). From
//! then on the descriptor is all they need. To ask for something a thread writes a [`Request`] and reads its
//! *doorbell*, a page that is always missing: the fault wakes the pager, which reads the request and answers
//! by giving the page content. The thread takes the answer and drops the page again. So requests need no
//! descriptor that a program might close, work in forked children at once, and sleep in the kernel.
//!
//! The first pages of a region are no memory for programs:
//!
//! | page | contents |
//! | --- | --- |
//! | 0 | never there: shows whether a process is alive |
//! | 1 | the agent's doorbell |
//! | 2 to 63 | doorbells of other threads |
//! | 64 … | memory |

use crate::types::Page;

/// The page that is never there.
pub const GUARD: Page = 0;
/// The agent's doorbell.
pub const AGENT: Page = 1;
/// The first doorbell of other threads.
pub const FIRST_DOORBELL: Page = 2;
/// The first page for programs.
pub const FIRST_PAGE: Page = 64;

/// The first word of a [`Hello`]; the last digit is the version.
pub const MAGIC: u64 = 0x6573_6b65_7250_6701;

/// First message of a program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// The process.
    pub pid: u64,
    /// Where its region begins.
    pub base: u64,
    /// Bytes of its region.
    pub size: u64,
    /// Where its requests lie, one for each doorbell.
    pub requests: u64,
    /// Whether forks are told.
    pub forks: u64,
}

/// Operations of a request.
pub mod op {
    /// Reserves `b` bytes; the answer is their address. With `a`, exactly there.
    pub const RESERVE: u64 = 1;
    /// Drops the content of `b` bytes at `a`.
    pub const DISCARD: u64 = 2;
    /// Ends the reservation of `b` bytes at `a`, whose content is dropped.
    pub const RELEASE: u64 = 3;
    /// The agent has carried out its orders, and waits for more.
    pub const NEXT: u64 = 4;
    /// Process `a` is about to exit. The answer comes when its pager has shown its figures, if it wants to.
    pub const EXIT: u64 = 5;
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

/// The words of an answer: an error number or 0, the value, and for the agent as many pairs of
/// address and size as the value says.
pub const ANSWER_WORDS: usize = 512;
