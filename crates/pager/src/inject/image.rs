//! The library, as it lies in a program's memory: its segments with all addresses in them, and a few functions that it would have
//! from the C library.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget};

use super::{Place, word_at};
use crate::types::PAGE;

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// Functions that are entered.
const PARENT: &str = "esker_enter";
const CHILD: &str = "esker_enter_child";

/// Bytes of the stack that a function gets.
const STACK: usize = 64 << 10;

std::arch::global_asm!(
    ".pushsection .text.esker_stubs, \"ax\"",
    ".balign 16",
    "esker_stubs_begin:",
    // memcpy and memmove: rdi, rsi, rdx.
    "esker_stub_copy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2:",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    // memset: rdi, esi, rdx.
    "esker_stub_set:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    // bcmp: rdi, rsi, rdx. Equal, also of nothing, is 0.
    "esker_stub_compare:",
    "mov rcx, rdx",
    "xor eax, eax",
    "cmp eax, eax",
    "repe cmpsb",
    "setne al",
    "ret",
    // Where functions return to.
    "esker_stub_end:",
    "int3",
    // A function that is not there.
    "esker_stub_none:",
    "ud2",
    "esker_stubs_finish:",
    ".popsection",
);

unsafe extern "C" {
    static esker_stubs_begin: u8;
    static esker_stub_copy: u8;
    static esker_stub_set: u8;
    static esker_stub_compare: u8;
    static esker_stub_end: u8;
    static esker_stub_none: u8;
    static esker_stubs_finish: u8;
}

/// A part with the same access: offset, bytes, access.
type Part = (usize, usize, i32);

/// The library.
pub(super) struct Library {
    /// The segments, and behind them the stubs.
    content: Vec<u8>,
    /// Words that are addresses in the library.
    addresses: BTreeMap<usize, usize>,
    parts: Vec<Part>,
    /// Bytes in a program: the content, a word of its own, and a stack.
    pub(super) size: usize,
    /// Offsets of functions, and of where they return to.
    pub(super) parent: usize,
    pub(super) child: usize,
    pub(super) end: usize,
    token: usize,
}

impl Library {
    /// Reads it.
    pub(super) fn read(path: &Path) -> io::Result<Library> {
        let bytes = fs::read(path)?;
        let told = |error: object::Error| io::Error::other(format!("{}: {error}", path.display()));
        let file = Elf::parse(&*bytes).map_err(told)?;
        let lacks = |what: &str| io::Error::other(format!("{}: no {what}", path.display()));
        let (mut content, mut parts) = (Vec::new(), Vec::new());
        for segment in file.segments() {
            let (at, size) = (index(segment.address())?, index(segment.size())?);
            let data = segment.data().map_err(told)?;
            let end = at + size;
            if content.len() < end {
                content.resize(end.next_multiple_of(PAGE), 0);
            }
            content[at..at + data.len()].copy_from_slice(data);
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            let has = |flag: elf::ProgramFlags| p_flags.0 & flag.0 != 0;
            if !has(elf::PF_W) {
                let first = at / PAGE * PAGE;
                let code = if has(elf::PF_X) { libc::PROT_EXEC } else { 0 };
                parts.push((first, (end - first).next_multiple_of(PAGE), libc::PROT_READ | code));
            }
        }
        let stubs = content.len();
        let code = stub_code();
        content.extend_from_slice(code);
        content.resize(content.len().next_multiple_of(PAGE), 0);
        parts.push((stubs, content.len() - stubs, libc::PROT_READ | libc::PROT_EXEC));
        let mut addresses = BTreeMap::new();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let addend = relocation.addend();
            let symbol = |index| {
                let symbol = file.dynamic_symbol_table().and_then(|table| {
                    object::ObjectSymbolTable::symbol_by_index(&table, index).ok()
                })?;
                Some(if symbol.is_undefined() {
                    stubs + stub(symbol.name().unwrap_or_default())
                } else {
                    index_or_none(symbol.address())?
                })
            };
            let to = match (r_type, relocation.target()) {
                (elf::R_X86_64_RELATIVE, _) => usize::try_from(addend).ok(),
                (
                    elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_64,
                    RelocationTarget::Symbol(index),
                ) => symbol(index)
                    .and_then(|at| at.checked_add_signed(isize::try_from(addend).ok()?)),
                // Thread-local storage, which what is entered does not use.
                _ => continue,
            };
            let to = to.ok_or_else(|| lacks("known relocation"))?;
            addresses.insert(index(at)?, to);
        }
        let find = |name: &str| {
            let found = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
            index(found.ok_or_else(|| lacks(name))?.address())
        };
        let (parent, child) = (find(PARENT)?, find(CHILD)?);
        let end = stubs + offset(&raw const esker_stub_end);
        let token = content.len();
        content.resize(token + PAGE, 0);
        let size = content.len() + STACK;
        Ok(Library { content, addresses, parts, size, parent, child, end, token })
    }

    /// Offset of a text that comes with it.
    pub(super) fn name(&self) -> usize {
        self.token + 8
    }

    /// Writes it to a place in a process's memory, and a text. Gives its word there.
    pub(super) fn write(&self, memory: &File, base: usize, text: &[u8]) -> io::Result<u64> {
        let mut content = self.content.clone();
        for (&at, &to) in &self.addresses {
            let word = content.get_mut(at..at + 8).ok_or(io::ErrorKind::InvalidData)?;
            word.copy_from_slice(&(base + to).to_ne_bytes());
        }
        let token = crate::raw::unguessable();
        content[self.token..self.token + 8].copy_from_slice(&token.to_ne_bytes());
        let name = self.name();
        let room = content.get_mut(name..name + text.len()).ok_or(io::ErrorKind::InvalidInput)?;
        room.copy_from_slice(text);
        memory.write_all_at(&content, base as u64)?;
        Ok(token)
    }

    /// Whether a process has it there.
    pub(super) fn is_at(&self, memory: &File, place: &Place) -> bool {
        word_at(memory, place.base + self.token) == Some(place.token)
    }

    /// The parts that are not data.
    pub(super) fn protections(&self) -> impl Iterator<Item = Part> + '_ {
        self.parts.iter().copied()
    }
}

/// The stubs' code.
fn stub_code() -> &'static [u8] {
    let size = offset(&raw const esker_stubs_finish);
    // SAFETY: from the first to the last label, which are in the same section of this program's code.
    unsafe { std::slice::from_raw_parts(&raw const esker_stubs_begin, size) }
}

fn offset(label: *const u8) -> usize {
    label.addr() - (&raw const esker_stubs_begin).addr()
}

/// The stub of a function that the library expects.
fn stub(name: &str) -> usize {
    offset(match name {
        "memcpy" | "memmove" => &raw const esker_stub_copy,
        "memset" => &raw const esker_stub_set,
        "bcmp" | "memcmp" => &raw const esker_stub_compare,
        _ => &raw const esker_stub_none,
    })
}

fn index(at: u64) -> io::Result<usize> {
    index_or_none(at).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn index_or_none(at: u64) -> Option<usize> {
    usize::try_from(at).ok()
}
