//! Lists of texts that the caller frees.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::ptr;

use crate::border::{Handle, free, give, the};

/// Texts. The caller owns them, and frees them with `esker_list_free`.
pub struct List;

impl Handle for List {
    type Of = Vec<CString>;
    const TAG: u64 = u64::from_le_bytes(*b"esk.list");
    const NAME: &'static str = "esker_list";
    const INHERITED: bool = true;
}

pub(crate) fn list(texts: Vec<String>) -> *mut List {
    let text = |text: String| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    give(texts.into_iter().map(text).collect())
}

/// How many texts there are; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_list_size(list: *const List) -> usize {
    // SAFETY: null, or a list of the caller's.
    unsafe { the(list) }.map_or(0, Vec::len)
}

/// The text at `index`, from 0. It belongs to the list. NULL where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_list_at(list: *const List, index: usize) -> *const c_char {
    // SAFETY: null, or a list of the caller's.
    let text = unsafe { the(list) }.ok().and_then(|list| list.get(index));
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// Frees a list. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_list_free(list: *mut List) {
    // SAFETY: null, or a list that the caller gives up.
    unsafe { free(list) };
}
