//! The program: whether it can be helped, and which libraries it needs for that.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use esker_base::ErrorKind;
use object::{Object, ObjectSymbol};

use crate::args::AllocatorArg;
use crate::failure::{Failure, Result};

/// The caller's `LD_PRELOAD`, which is the program's.
pub(super) const PRELOADED: &str = "ESKER_LD_PRELOAD";
/// Interposes mappings.
pub(super) const MAPPING: &str = "libesker_preload.so";
/// An allocator.
pub(super) const ALLOCATOR: &str = "libesker_malloc.so";
/// Libraries that bring an allocator.
const ALLOCATORS: [&str; 5] = ["jemalloc", "tcmalloc", "mimalloc", "hoard", "snmalloc"];
/// "Set user id" and "set group id" of a file's mode.
const SETUID: u32 = 0o6000;
/// An entry of an ELF file's program headers that names an interpreter.
const PT_INTERP: u32 = 3;

/// A program that can be preloaded.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The binary that the kernel runs for it: itself, or the interpreter of a script.
    binary: PathBuf,
    /// It loads no libraries.
    pub(super) is_static: bool,
}

/// Finds the program, and refuses one that cannot be helped.
pub(super) fn find(name: &OsStr) -> Result<Program> {
    let path = look_up(name)?;
    let mut binary = path.clone();
    // A script's interpreter may be a script.
    for _ in 0..4 {
        match interpreter(&binary)? {
            Some(next) => binary = next,
            None => break,
        }
    }
    let refuse = |why: &str| {
        let message = format!("{}: {why}", binary.display());
        Err(Failure::new(ErrorKind::Unsupported, message))
    };
    let failed = |error| Failure::file(&binary, &error, "check the path and its permissions");
    if std::fs::metadata(&binary).map_err(failed)?.mode() & SETUID != 0 {
        return refuse("a setuid program ignores preloaded libraries; run a copy without the bit");
    }
    if let Some(sanitizer) = sanitizer(&binary) {
        let why = format!(
            "it is built with {sanitizer}, which needs the memory that this pages; use a build without"
        );
        return refuse(&why);
    }
    match elf_interpreter(&binary) {
        Elf::Not => refuse("it is neither an ELF program nor a script"),
        Elf::Static if !cfg!(target_arch = "x86_64") => refuse(
            "it is statically linked, and takes no preloaded library; use a dynamically linked build",
        ),
        Elf::Dynamic(loader) if loader.contains("musl") => {
            refuse("it uses musl, and the preloaded library needs glibc; use a build for glibc")
        }
        Elf::Static => Ok(Program { path, binary, is_static: true }),
        Elf::Dynamic(_) => Ok(Program { path, binary, is_static: false }),
    }
}

fn look_up(name: &OsStr) -> Result<PathBuf> {
    let path = PathBuf::from(name);
    if path.components().count() > 1 {
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    found.into_iter().find(is_program).ok_or_else(|| {
        let message = format!("{}: no such program in PATH", Path::new(name).display());
        Failure::new(ErrorKind::NotFound, message)
    })
}

/// The interpreter that a script names.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let failed = |error| Failure::file(path, &error, "check the path and its permissions");
    let file = File::open(path).map_err(failed)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(file).take(256);
    reader.read_until(b'\n', &mut line).map_err(failed)?;
    let text = String::from_utf8_lossy(&line);
    let Some(rest) = text.strip_prefix("#!") else { return Ok(None) };
    let mut words = rest.split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return Ok(Some(PathBuf::from(first)));
    }
    let program = words.find(|word| !word.starts_with('-') && !word.contains('='));
    program.map(|program| look_up(OsStr::new(program))).transpose()
}

enum Elf {
    Not,
    Static,
    Dynamic(String),
}

/// How a program is linked, by the 64-bit ELF format.
fn elf_interpreter(path: &Path) -> Elf {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64 << 10).read_to_end(&mut bytes));
    if read.is_err() || !bytes.starts_with(b"\x7fELF\x02") {
        return Elf::Not;
    }
    let number = |at: usize, size: usize| -> Option<usize> {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    let headers = || {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).find_map(|n| {
            let header = table.checked_add(n.checked_mul(size)?)?;
            (number(header, 4)? == PT_INTERP as usize).then_some(())?;
            let (offset, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
            let text = bytes.get(offset..offset.checked_add(length)?)?;
            Some(String::from_utf8_lossy(text).into_owned())
        })
    };
    headers().map_or(Elf::Static, Elf::Dynamic)
}

/// The sanitizer of a program that has one: it maps all of the address space.
fn sanitizer(binary: &Path) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 4] = [
        (b"__asan_init", "AddressSanitizer"),
        (b"__tsan_init", "ThreadSanitizer"),
        (b"__msan_init", "MemorySanitizer"),
        (b"__hwasan_init", "HWAddressSanitizer"),
    ];
    let bytes = std::fs::read(binary).ok()?;
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
    let names: Vec<&[u8]> =
        file.dynamic_symbols().filter_map(|symbol| symbol.name_bytes().ok()).collect();
    KNOWN.iter().find(|(symbol, _)| names.contains(symbol)).map(|(_, name)| *name)
}

/// The value of `LD_PRELOAD`.
pub(super) fn libraries(program: &Program, allocator: AllocatorArg) -> Result<OsString> {
    let mut names = vec![library(MAPPING)?];
    let needs_one = match allocator {
        AllocatorArg::Own => false,
        AllocatorArg::Bundled => true,
        // The loader would be asked, and there is none.
        AllocatorArg::Auto => !program.is_static && !has_allocator(&program.binary),
    };
    if needs_one {
        names.push(library(ALLOCATOR)?);
    }
    let mut text = OsString::new();
    for name in names {
        text.push(name);
        text.push(":");
    }
    text.push(std::env::var_os(PRELOADED).unwrap_or_default());
    Ok(text)
}

/// A library of ours: beside this program, or where an installation has it.
pub(super) fn library(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [folder.join(name), folder.join("../lib/esker").join(name)];
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let message = format!(
            "{}: it is not there; `cargo build -p esker-preload -p esker-preload-malloc` makes it \
             (--release as this program)",
            places[0].display()
        );
        Failure::new(ErrorKind::NotFound, message)
    })
}

/// Whether the loader would load a library that brings an allocator.
fn has_allocator(binary: &Path) -> bool {
    let mut command = Command::new(binary);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(mut listed) = command.stdout(Stdio::piped()).spawn() else { return false };
    let mut text = Vec::new();
    let read = listed.stdout.take().map(|mut output| output.read_to_end(&mut text));
    // Where the caller ignores SIGCHLD its end cannot be waited for.
    let _ = listed.wait();
    let text = String::from_utf8_lossy(&text);
    read.is_some() && ALLOCATORS.iter().any(|name| text.contains(name))
}
