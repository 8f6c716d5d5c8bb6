//! One daemon per home: a lock that the kernel frees with its holder, and what the holder says of itself.
//!
//! **Invariant:** whoever holds the lock owns every other file of the run directory, so that what a killed daemon
//! left there can be removed. Folder and files are for their owner alone, whatever the umask.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toolrack_service::Home;

use crate::daemon::DaemonError;
use crate::tokens;
use crate::tokens::Token;

/// The name of the Unix socket in the run directory.
const SOCKET: &str = "daemon.sock";
/// The name of the file with the key for TCP.
const TOKEN: &str = "daemon.token";
/// What a holder says of itself is shorter than this.
const LARGEST_BYTES: u64 = 16 << 10;
/// The longest path of a Unix socket that every system takes.
const LONGEST_PATH: usize = 100;
/// How often and how long to wait for somebody who only looks at the lock.
const N_LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// What a daemon says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// Where programs of the same user reach it.
    pub socket: PathBuf,
    /// Where browsers and other clients reach it.
    pub addr: Option<SocketAddr>,
    /// Which version it is.
    pub version: String,
    /// The config file that it follows.
    pub config: PathBuf,
    /// Whose servers it runs, unless everybody's.
    pub agent: Option<String>,
}

impl Running {
    /// The daemon of a home, if one runs.
    ///
    /// # Errors
    ///
    /// When the lock cannot be looked at.
    pub fn find(home: &Home) -> Result<Option<Self>, DaemonError> {
        let path = home.lock_file();
        let unread = |source| DaemonError::File { done: "read", path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // Nobody holds it, and dropping the file gives it back.
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => Ok(said(&file)),
            Err(error) => Err(unread(error.into())),
        }
    }
}

/// The place of the one daemon of a home. Given up when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    lock: File,
    lock_path: PathBuf,
    socket: PathBuf,
    token: PathBuf,
}

impl Seat {
    /// Takes the place, and clears away what a killed predecessor left.
    pub(crate) fn take(home: &Home) -> Result<Self, DaemonError> {
        let dir = home.run_dir();
        make_private(&dir).map_err(|source| trouble("used", &dir, source))?;
        let (socket, token) = (dir.join(SOCKET), dir.join(TOKEN));
        if socket.as_os_str().len() > LONGEST_PATH {
            return Err(trouble("bound", &socket, io::ErrorKind::InvalidInput.into()));
        }
        let lock_path = home.lock_file();
        let lock =
            open_private(&lock_path).map_err(|source| trouble("opened", &lock_path, source))?;
        match hold(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(DaemonError::Running { pid: said(&lock).map(|it| it.pid), socket });
            }
            Err(error) => return Err(trouble("locked", &lock_path, error.into())),
        }
        let seat = Self { lock, lock_path, socket, token };
        seat.clear();
        Ok(seat)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The key for TCP, which clients have in their configs: the one that was used before, or else a new one.
    /// Whoever wants another removes the file.
    pub(crate) fn token(&self) -> Result<Token, DaemonError> {
        let fault = |source| trouble("used", &self.token, source);
        let mut file = open_private(&self.token).map_err(fault)?;
        let mut text = Vec::new();
        (&file).take(LARGEST_BYTES).read_to_end(&mut text).map_err(fault)?;
        if let Some(token) = Token::parse(&text) {
            return Ok(token);
        }
        let token = Token::random()?;
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written = written.and_then(|()| file.write_all(token.reveal().as_bytes()));
        written.and_then(|()| file.sync_all()).map_err(fault)?;
        Ok(token)
    }

    /// Says who holds the place.
    pub(crate) fn introduce(&self, running: &Running) -> Result<(), DaemonError> {
        let text = serde_json::to_vec(running).unwrap_or_default();
        let mut file = &self.lock;
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
        written.map_err(|source| trouble("written", &self.lock_path, source))
    }

    fn clear(&self) {
        if let Some(dir) = self.socket.parent() {
            tokens::sweep(dir);
        }
        match fs::remove_file(&self.socket) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, path = %self.socket.display(), "is left behind");
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The lock file itself stays: removing it would let two daemons lock two files of one name.
        self.lock.set_len(0).unwrap_or_default();
        self.clear();
    }
}

/// The file with the key for TCP of the daemon of a home.
pub fn token_file(home: &Home) -> PathBuf {
    home.run_dir().join(TOKEN)
}

/// Takes the lock. Whoever only looks at it holds it for a moment too, and says nothing of itself.
fn hold(lock: &File) -> Result<(), Errno> {
    for _look in 0..N_LOOKS {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if said(lock).is_none() => thread::sleep(PAUSE),
            other => return other,
        }
    }
    Err(Errno::WOULDBLOCK)
}

fn said(file: &File) -> Option<Running> {
    let mut text = String::new();
    let mut file = file;
    file.rewind().ok()?;
    file.take(LARGEST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// A folder of ours that nobody else can enter. One that belongs to somebody else is refused.
fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        let reason = "it is not a folder of this user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn open_private(path: &Path) -> io::Result<File> {
    let no_link = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn trouble(done: &'static str, path: &Path, source: io::Error) -> DaemonError {
    DaemonError::File { done, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(seat: &Seat) -> Running {
        let socket = seat.socket().to_owned();
        Running {
            pid: 7,
            socket,
            addr: None,
            version: "1".to_owned(),
            config: PathBuf::from("x.toml"),
            agent: None,
        }
    }

    #[test]
    fn there_is_one_daemon_per_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert_eq!(Running::find(&home).unwrap(), None);
        let seat = Seat::take(&home).unwrap();
        seat.introduce(&running(&seat)).unwrap();
        let error = Seat::take(&home).unwrap_err();
        assert!(matches!(error, DaemonError::Running { pid: Some(7), .. }), "{error}");
        assert_eq!(Running::find(&home).unwrap(), Some(running(&seat)));
        drop(seat);
        assert_eq!(Running::find(&home).unwrap(), None);
        drop(Seat::take(&home).unwrap());
    }

    #[test]
    fn what_a_killed_daemon_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let seat = Seat::take(&home).unwrap();
        seat.token().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&home.run_dir()), mode(&token_file(&home))), (0o700, 0o600));
        drop(seat);
        // As it would be if it had been killed, with a folder that others can enter.
        File::create(home.run_dir().join(SOCKET)).unwrap();
        fs::set_permissions(home.run_dir(), Permissions::from_mode(0o755)).unwrap();
        let seat = Seat::take(&home).unwrap();
        assert!(!seat.socket().exists());
        assert_eq!(mode(&home.run_dir()), 0o700);
    }

    #[test]
    fn the_key_stays_until_its_file_is_removed_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let key = || Seat::take(&home).unwrap().token().unwrap().reveal().to_owned();
        let (first, second) = (key(), key());
        assert_eq!(first, second);
        OpenOptions::new().append(true).open(token_file(&home)).unwrap().write_all(b"0").unwrap();
        let third = key();
        fs::remove_file(token_file(&home)).unwrap();
        let fourth = key();
        assert!(first != third && third != fourth && third == third.to_lowercase());
        assert_eq!(fs::read_to_string(token_file(&home)).unwrap(), fourth);
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Seat::take(&Home::at(dir.path().join("a".repeat(100)))).unwrap_err();
        assert!(error.hint().unwrap().contains("shorter"), "{error}");
    }
}
