//! `libesker_preload.so`: an unchanged program's large anonymous mappings become paged memory.
//!
//! `esker run` names it in `LD_PRELOAD`. It takes the place of `mmap`, `munmap`, `mremap`,
//! `madvise` and of the functions that lock memory; the pager is another process, the one that
//! runs the program.
//!
//! | module | content |
//! | --- | --- |
//! | [`connect`] | finds the pager and hands over this process's region |
//! | [`mapping`] | the functions that are replaced |
//!
//! Invariants
//! 1. Nothing here allocates: the program's allocator stands on these functions.
//! 2. Nothing here holds a lock while it calls out, so a fork finds none held.
//! 3. Where the pager is not concerned, a call goes to the kernel as it is.

mod connect;
pub mod mapping;
