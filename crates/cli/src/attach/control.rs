//! The socket at which the process that serves a device is asked to detach it.
//!
//! It is `attach/N` in the directory of the sockets of pools, or in `/tmp/esker-UID` where a user has no such
//! directory. N is the number of the mount's FUSE connection: no other mount of the machine has it at the same time,
//! whatever namespaces the processes are in. Only the owner of the directory and root may connect.
//!
//! The server sends lines of JSON ([`Said`]): the first one as soon as it has seen the connection, the last one when
//! its device is closed. A client sends a byte for each wish ([`Wish`]). The connection ends with the server.

use std::io::{BufRead, BufReader, ErrorKind as Io, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::ErrorKind;
use esker_serve::socket::bind;
use esker_stack::served;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::pool::socket;

/// Clients that are heard at once; a further one takes the place of the one that has waited longest.
const CLIENTS: usize = 16;
/// How long a client waits for room at a socket: a server that is stopped has room for some only.
const CONNECT: Duration = Duration::from_secs(1);
/// The largest line of a server, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// A message of the server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// It runs, and listens.
    Ready,
    /// The device is not mounted any more.
    Unmounted,
    /// The device is closed, or could not be: the exit code and the reason.
    Closed { notes: Vec<String>, failure: Option<(u8, String)> },
}

/// A wish of a client, or of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// Detach the device when nobody uses it.
    Detach,
    /// Detach it whoever uses it.
    Force,
}

impl Wish {
    fn byte(self) -> u8 {
        match self {
            Wish::Detach => b'd',
            Wish::Force => b'f',
        }
    }
}

/// Where the socket of a mount may be, the usual place first.
fn places(connection: u32, owner: u32) -> Vec<PathBuf> {
    let usual = match rustix::process::geteuid().as_raw() == owner {
        true => socket::directory(),
        false => served::socket_dir_of(owner),
    };
    let mut directories = vec![usual];
    let shared = PathBuf::from(format!("/tmp/esker-{owner}"));
    // Everybody may make that directory: it counts if it is the owner's alone.
    let is_private = std::fs::symlink_metadata(&shared)
        .map(|found| found.is_dir() && found.uid() == owner && found.mode().trailing_zeros() >= 6);
    if is_private.unwrap_or_else(|error| error.kind() == Io::NotFound) {
        directories.push(shared);
    }
    let name = connection.to_string();
    directories.into_iter().map(|directory| directory.join("attach").join(&name)).collect()
}

/// The server's end while the device is mounted.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The device and the inode of the socket's file.
    file: (u64, u64),
    clients: Vec<UnixStream>,
}

/// Clients that wait for the end of a device that is not mounted any more.
#[derive(Default)]
pub(super) struct Clients(Vec<UnixStream>);

impl Control {
    /// Listens for the clients of this process's mount.
    pub(super) fn open(connection: u32) -> Result<Control> {
        let advice = "`esker detach` cannot reach this process: end it with SIGTERM";
        let mut outcome = Err(Failure::new(ErrorKind::Io, advice));
        for path in places(connection, rustix::process::geteuid().as_raw()) {
            outcome = Control::at(path, advice);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn at(path: PathBuf, advice: &str) -> Result<Control> {
        // No other mount has the number: a process that listens here has served one that is gone.
        let _ = std::fs::remove_file(&path);
        let listener = bind(&path, advice)?;
        let failed = |error| Failure::file(&path, &error, advice);
        listener.set_nonblocking(true).map_err(failed)?;
        let file = number(&path).map_err(failed)?;
        Ok(Control { listener, path, file, clients: Vec::new() })
    }

    /// The strongest of the wishes that have come, without waiting for one.
    pub(super) fn wish(&mut self) -> Option<Wish> {
        // A client that fails does not stop the others.
        while let Ok((client, _)) = self.listener.accept() {
            if client.set_nonblocking(true).is_ok() {
                self.clients.truncate(CLIENTS - 1);
                self.clients.insert(0, client);
                tell(&mut self.clients[0], &Said::Ready);
            }
        }
        let mut strongest = None;
        self.clients.retain_mut(|client| {
            let mut bytes = [0; 8];
            match client.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    for wish in [Wish::Detach, Wish::Force] {
                        if bytes[..count].contains(&wish.byte()) {
                            strongest = strongest.max(Some(wish));
                        }
                    }
                }
                Err(error) => return matches!(error.kind(), Io::WouldBlock | Io::Interrupted),
            }
            true
        });
        strongest
    }

    /// Ends listening: the device is not mounted any more, and a later mount may have its number.
    pub(super) fn unmounted(mut self) -> Clients {
        self.wish(); // clients that have just come are heard to the end
        let mut clients = Clients(std::mem::take(&mut self.clients));
        drop(self);
        clients.say(&Said::Unmounted);
        clients
    }
}

impl Clients {
    /// Tells all clients.
    pub(super) fn say(&mut self, said: &Said) {
        self.0.iter_mut().for_each(|client| tell(client, said));
    }
}

/// The device and the inode of a file.
fn number(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// The few lines fit the socket's buffer. A client that is gone misses nothing.
fn tell(client: &mut UnixStream, said: &Said) {
    let line = serde_json::to_string(said).unwrap_or_default();
    let _ = client.write_all(format!("{line}\n").as_bytes());
}

impl Drop for Control {
    fn drop(&mut self) {
        // A later mount with the number may have put its own there. A file that is left is replaced.
        if number(&self.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A client's end.
pub(super) struct ServingProcess {
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
}

/// News of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing within the time.
    Nothing,
    Said(Said),
    /// The process has ended.
    Ended,
}

impl ServingProcess {
    /// The process that serves a mount; none if none listens.
    pub(super) fn find(connection: u32, owner: u32) -> Option<ServingProcess> {
        places(connection, owner).iter().find_map(|path| ServingProcess::at(path))
    }

    fn at(path: &Path) -> Option<ServingProcess> {
        let stream = served::connect(path, CONNECT).ok()?;
        Some(ServingProcess { lines: BufReader::new(stream), line: Vec::new() })
    }

    /// Tells a wish. A server that has ended says so by itself.
    pub(super) fn ask(&mut self, wish: Wish) {
        let _ = self.lines.get_mut().write_all(&[wish.byte()]);
    }

    /// Waits for what the server says next, for at most `within`.
    pub(super) fn news(&mut self, within: Duration) -> News {
        let within = within.max(Duration::from_millis(1)); // zero is no limit to the system
        if self.lines.get_ref().set_read_timeout(Some(within)).is_err() {
            return News::Ended;
        }
        match (&mut self.lines).take(LINE_MAX).read_until(b'\n', &mut self.line) {
            Ok(0) => News::Ended,
            Ok(_) => {
                let said = serde_json::from_slice(&self.line);
                self.line.clear();
                said.map_or(News::Ended, News::Said)
            }
            Err(error)
                if matches!(error.kind(), Io::WouldBlock | Io::TimedOut | Io::Interrupted) =>
            {
                News::Nothing
            }
            Err(_) => News::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn control(dir: &tempfile::TempDir) -> Control {
        Control::at(dir.path().join("attach/7"), "").unwrap()
    }

    #[test]
    fn wishes_reach_server_and_outcome_reaches_every_client() {
        let dir = tempfile::tempdir().unwrap();
        let mut control = control(&dir);
        let connect = || ServingProcess::at(&dir.path().join("attach/7")).unwrap();
        let (mut one, mut other) = (connect(), connect());
        assert_eq!(one.news(Duration::ZERO), News::Nothing, "a server that is stopped");
        assert_eq!(control.wish(), None);
        assert_eq!(one.news(LONG), News::Said(Said::Ready));
        assert_eq!(other.news(LONG), News::Said(Said::Ready));
        one.ask(Wish::Force);
        other.ask(Wish::Detach);
        assert_eq!(control.wish(), Some(Wish::Force));
        assert_eq!(control.wish(), None);
        let said = || Said::Closed {
            notes: vec!["a\nb".to_owned()],
            failure: Some((74, "it failed".to_owned())),
        };
        let late = connect();
        let mut clients = control.unmounted();
        assert!(ServingProcess::at(&dir.path().join("attach/7")).is_none());
        clients.say(&said());
        drop(clients);
        for (mut client, is_late) in [(one, false), (other, false), (late, true)] {
            if is_late {
                assert_eq!(client.news(LONG), News::Said(Said::Ready));
            }
            assert_eq!(client.news(LONG), News::Said(Said::Unmounted));
            assert_eq!(client.news(LONG), News::Said(said()));
            assert_eq!(client.news(LONG), News::Ended);
        }
    }

    #[test]
    fn later_mount_with_the_number_takes_the_socket_from_a_process_that_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let stopped = control(&dir);
        let mut later = control(&dir);
        drop(stopped);
        let mut client = ServingProcess::at(&dir.path().join("attach/7")).unwrap();
        client.ask(Wish::Detach);
        assert_eq!(later.wish(), Some(Wish::Detach));
    }

    #[test]
    fn line_without_end_is_no_message() {
        let (mut server, client) = UnixStream::pair().unwrap();
        let mut client = ServingProcess { lines: BufReader::new(client), line: Vec::new() };
        let flood =
            esker_base::thread::spawn(
                "flood",
                move || {
                    while server.write_all(&[b'x'; 4096]).is_ok() {}
                },
            );
        assert_eq!(client.news(LONG), News::Ended);
        drop(client);
        flood.unwrap().join().unwrap();
    }

    #[test]
    fn clients_that_say_nothing_or_nonsense_keep_nobody_from_being_heard() {
        let dir = tempfile::tempdir().unwrap();
        let mut control = control(&dir);
        let path = dir.path().join("attach/7");
        let silent: Vec<_> = (0..100)
            .map(|_| {
                let client = UnixStream::connect(&path).unwrap();
                assert_eq!(control.wish(), None);
                client
            })
            .collect();
        (&silent[99]).write_all(&[0; 4096]).unwrap();
        let mut client = ServingProcess::at(&path).unwrap();
        client.ask(Wish::Detach);
        assert_eq!(control.wish(), Some(Wish::Detach));
        assert!(control.clients.len() <= CLIENTS);
    }
}
