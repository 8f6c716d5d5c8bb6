//! Instance lock: one daemon per home, and the info file through which clients find it.
//!
//! The lock is an `flock` on a file, which the kernel releases when its holder dies. The same file holds the
//! [`DaemonInfo`] of the holder.
//!
//! **Invariant:** the lock holder owns every other file of the run directory, so it may remove the files that a
//! killed daemon left. Directory and files are private to their owner, regardless of the umask.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toolrack_platform::{ensure_private_dir, private_options};
use toolrack_service::Home;

use crate::daemon::DaemonError;
use crate::tokens::{Token, remove_file, remove_stale_login_files};

/// File name of the Unix socket in the run directory.
const SOCKET_FILE: &str = "daemon.sock";
/// File name of the API token in the run directory.
const TOKEN_FILE: &str = "daemon.token";
/// Maximum size of the lock file and the token file.
const MAX_FILE_BYTES: u64 = 16 << 10;
/// The longest socket path that every system accepts (`sun_path` has 104 bytes on some).
const MAX_SOCKET_PATH: usize = 100;
/// `DaemonInfo::find` holds a shared lock for a moment; acquiring retries that often and waits that long in between.
const LOCK_ATTEMPTS: usize = 20;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Process, addresses and config of a running daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Its process id.
    pub pid: u32,
    /// When the process started, in clock ticks since the boot: tells it from a later process with the same id.
    #[serde(default)]
    pub start_time: Option<u64>,
    /// Its Unix socket, for programs of the same user.
    pub socket: PathBuf,
    /// Its TCP address, for browsers and MCP clients.
    pub addr: Option<SocketAddr>,
    /// Its version.
    pub version: String,
    /// The config file that it watches.
    pub config: PathBuf,
    /// The agent whose servers it runs. `None` for the default servers.
    pub agent: Option<String>,
}

impl DaemonInfo {
    /// Finds the running daemon of a home.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be read.
    pub fn find(home: &Home) -> Result<Option<Self>, DaemonError> {
        let path = home.lock_file();
        let read_error = |source| file_error("read", &path, source);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read_error(error)),
        };
        // A shared lock, so that several clients that look at the same time do not mistake each
        // other for a daemon.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // No daemon holds the lock; dropping the file releases ours.
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => Ok(read_info(&file)),
            Err(error) => Err(read_error(error.into())),
        }
    }
}

/// The lock of the one daemon of a home. Released on drop.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    lock: File,
    home: Home,
}

impl InstanceLock {
    /// Acquires the lock and removes the files that a killed daemon left.
    pub(crate) fn acquire(home: &Home) -> Result<Self, DaemonError> {
        let dir = home.run_dir();
        ensure_private_dir(&dir).map_err(|source| file_error("use", &dir, source))?;
        let socket = dir.join(SOCKET_FILE);
        // Checked here for a clear error: `bind` would fail with a bare "invalid argument".
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(file_error("bind", &socket, io::ErrorKind::InvalidInput.into()));
        }
        let lock_path = home.lock_file();
        let lock =
            open_private(&lock_path).map_err(|source| file_error("open", &lock_path, source))?;
        match lock_with_retry(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = read_info(&lock).map(|info| info.pid);
                return Err(DaemonError::AlreadyRunning { pid, socket });
            }
            Err(error) => return Err(file_error("lock", &lock_path, error.into())),
        }
        let instance = Self { lock, home: home.clone() };
        // Only with the lock: without it, the socket may belong to a running daemon.
        instance.remove_stale_files();
        Ok(instance)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.run_dir().join(SOCKET_FILE)
    }

    /// Reads the API token, or creates one. It stays the same across restarts, because client configs contain it;
    /// removing the file replaces it.
    pub(crate) fn token(&self) -> Result<Token, DaemonError> {
        let path = token_file(&self.home);
        let error = |source| file_error("use", &path, source);
        let file = open_private(&path).map_err(error)?;
        let mut text = Vec::new();
        (&file).take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(error)?;
        if let Some(token) = Token::parse(&text) {
            return Ok(token);
        }
        let token = Token::random()?;
        let written = rewrite(&file, token.reveal().as_bytes());
        // On disk before the first client copies it into its config.
        written.and_then(|()| file.sync_all()).map_err(error)?;
        Ok(token)
    }

    /// Writes the info of this daemon into the lock file.
    pub(crate) fn write_info(&self, info: &DaemonInfo) -> Result<(), DaemonError> {
        let text = serde_json::to_vec(info).unwrap_or_default();
        let written = rewrite(&self.lock, &text);
        written.map_err(|source| file_error("write", &self.home.lock_file(), source))
    }

    fn remove_stale_files(&self) {
        remove_stale_login_files(&self.home.run_dir());
        remove_file(&self.socket());
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // The lock file itself stays: if it were removed, two daemons could lock two files of the same name.
        self.lock.set_len(0).unwrap_or_default();
        self.remove_stale_files();
    }
}

/// The file with the API token of a home's daemon.
pub fn token_file(home: &Home) -> PathBuf {
    home.run_dir().join(TOKEN_FILE)
}

/// Takes the exclusive lock. A lock without info is held by a reader (`DaemonInfo::find`) or by a daemon that is
/// starting, so it is worth a retry.
fn lock_with_retry(lock: &File) -> Result<(), Errno> {
    for _attempt in 0..LOCK_ATTEMPTS {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if read_info(lock).is_none() => thread::sleep(LOCK_RETRY_DELAY),
            other => return other,
        }
    }
    Err(Errno::WOULDBLOCK)
}

fn read_info(file: &File) -> Option<DaemonInfo> {
    let mut text = String::new();
    let mut file = file;
    file.rewind().ok()?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn rewrite(mut file: &File, content: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(content)
}

/// Opens or creates a file that only its owner can read.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let file = private_options().read(true).write(true).create(true).truncate(false).open(path)?;
    // The mode of `open` counts only for a new file, and the umask reduces it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

pub(crate) fn file_error(action: &'static str, path: &Path, source: io::Error) -> DaemonError {
    DaemonError::File { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn sample_info(instance: &InstanceLock) -> DaemonInfo {
        let socket = instance.socket();
        DaemonInfo {
            pid: 7,
            start_time: None,
            socket,
            addr: None,
            version: "1".to_owned(),
            config: PathBuf::from("x.toml"),
            agent: None,
        }
    }

    #[test]
    fn one_daemon_per_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        assert_eq!(DaemonInfo::find(&home).unwrap(), None);
        let instance = InstanceLock::acquire(&home).unwrap();
        instance.write_info(&sample_info(&instance)).unwrap();
        let error = InstanceLock::acquire(&home).unwrap_err();
        assert!(matches!(error, DaemonError::AlreadyRunning { pid: Some(7), .. }), "{error}");
        assert_eq!(DaemonInfo::find(&home).unwrap(), Some(sample_info(&instance)));
        drop(instance);
        assert_eq!(DaemonInfo::find(&home).unwrap(), None);
        drop(InstanceLock::acquire(&home).unwrap());
    }

    #[test]
    fn files_of_a_killed_daemon_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let instance = InstanceLock::acquire(&home).unwrap();
        instance.token().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&home.run_dir()), mode(&token_file(&home))), (0o700, 0o600));
        drop(instance);
        // The state after a kill, with a directory that other users can enter.
        File::create(home.run_dir().join(SOCKET_FILE)).unwrap();
        fs::set_permissions(home.run_dir(), Permissions::from_mode(0o755)).unwrap();
        let instance = InstanceLock::acquire(&home).unwrap();
        assert!(!instance.socket().exists());
        assert_eq!(mode(&home.run_dir()), 0o700);
    }

    #[test]
    fn token_is_kept_until_its_file_is_removed_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let token = || InstanceLock::acquire(&home).unwrap().token().unwrap().reveal().to_owned();
        let (first, second) = (token(), token());
        assert_eq!(first, second);
        OpenOptions::new().append(true).open(token_file(&home)).unwrap().write_all(b"0").unwrap();
        let third = token();
        fs::remove_file(token_file(&home)).unwrap();
        let fourth = token();
        assert!(first != third && third != fourth && third == third.to_lowercase());
        assert_eq!(fs::read_to_string(token_file(&home)).unwrap(), fourth);
    }

    #[test]
    fn too_long_socket_path_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            InstanceLock::acquire(&Home::in_dir(dir.path().join("a".repeat(100)))).unwrap_err();
        assert!(error.hint().unwrap().contains("shorter"), "{error}");
    }
}
