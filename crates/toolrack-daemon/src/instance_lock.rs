//! Instance lock: one daemon per home, and the info file through which clients find it.
//!
//! The lock is an `flock` on a file, which the kernel releases when its holder dies. The same file holds the
//! [`DaemonInfo`] of the holder. A second `flock`, on the home directory itself, excludes another daemon also while the
//! file is missing, until the holder has put it back ([`InstanceLock::restore`]). A directory that other users can read
//! is not locked: they could lock it too, and keep the daemon from starting.
//!
//! **Invariant:** the lock holder owns every other file of the run directory, so it may remove the files that a
//! killed daemon left. Directory and files are private to their owner, regardless of the umask.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toolrack_platform::{ensure_private_dir, ensure_regular, private_options};
use toolrack_service::Home;

use crate::daemon::DaemonError;
use crate::keys::KeyFile;
use crate::tokens::{Token, remove_file, remove_stale_login_files};

/// File name of the Unix socket in the run directory.
const SOCKET_FILE: &str = "daemon.sock";
/// File name of the token that earlier versions kept in the run directory. It could be used for everything.
const TOKEN_FILE: &str = "daemon.token";
/// Maximum size of the lock file and the old token file.
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
        let file = match private_options().read(true).open(&path) {
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
    /// Before the lock file, so that it is released first: a client that finds no daemon may start one at once. `None`
    /// on a file system without locks for directories, and in a directory that other users can read.
    _home_lock: Option<File>,
    lock: Mutex<File>,
    home: Home,
}

impl InstanceLock {
    /// Acquires the lock and removes the files that a killed daemon left.
    pub(crate) fn acquire(home: &Home) -> Result<Self, DaemonError> {
        for path in [home.dir(), home.config_file()] {
            // The lock file is JSON, and so is the API: both need text.
            if path.to_str().is_none() {
                return Err(file_error("use", path, io::ErrorKind::InvalidFilename.into()));
            }
        }
        let dir = home.run_dir();
        ensure_private_dir(&dir).map_err(|source| file_error("use", &dir, source))?;
        let socket = dir.join(SOCKET_FILE);
        // Checked here for a clear error: `bind` would fail with a bare "invalid argument".
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(DaemonError::SocketPathTooLong(socket));
        }
        let home_lock = lock_home(home, &socket)?;
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
        // The info of a killed daemon names a process id that another process may have by now.
        lock.set_len(0).map_err(|source| file_error("write", &lock_path, source))?;
        let instance = Self { _home_lock: home_lock, lock: Mutex::new(lock), home: home.clone() };
        // Only with the lock: without it, the socket may belong to a running daemon.
        instance.remove_stale_files();
        Ok(instance)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.run_dir().join(SOCKET_FILE)
    }

    /// Turns the token of an earlier version, which could be used for everything, into a key for the servers of
    /// `agent`, so that configured MCP clients keep working. Removes its file.
    pub(crate) fn convert_token(&self, keys: &KeyFile, agent: Option<&str>) {
        let path = self.home.run_dir().join(TOKEN_FILE);
        let mut text = Vec::new();
        let read = private_options().read(true).open(&path);
        let read = read.and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => tracing::warn!(%error, "cannot read the token of an earlier version"),
            Ok(_) => {}
        }
        let converted = Token::parse(&text).map(|token| keys.add_legacy(token.reveal(), agent));
        match converted {
            Some(Ok(name)) => tracing::warn!(
                "the token of an earlier version is now the key `{name}`, for `/mcp` only; other programs may have \
                 seen it: replace it with `toolrack key rotate {name}`"
            ),
            // The file goes all the same: a token that no longer works must not look as if it did.
            Some(Err(error)) => {
                tracing::warn!(%error, "the token of an earlier version is no longer valid");
            }
            None => {}
        }
        remove_file(&path);
    }

    /// Writes the info of this daemon into the lock file.
    pub(crate) fn write_info(&self, info: &DaemonInfo) -> Result<(), DaemonError> {
        let path = self.home.lock_file();
        let error = |source| file_error("write", &path, source);
        let text = serde_json::to_vec(info).map_err(|not_text| error(not_text.into()))?;
        rewrite(&self.lock.lock(), &text).map_err(error)
    }

    /// Puts the lock file back if it was removed or replaced, so that clients find the daemon. Returns whether it was. A
    /// home that was removed as a whole is left alone.
    pub(crate) fn restore(&self, info: &DaemonInfo) -> Result<bool, DaemonError> {
        let path = self.home.lock_file();
        let error = |source| file_error("restore", &path, source);
        if !self.home.dir().is_dir() || is_at(&self.lock.lock(), &path).map_err(error)? {
            return Ok(false);
        }
        ensure_private_dir(&self.home.run_dir()).map_err(error)?;
        let file = open_private(&path).map_err(error)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|busy| error(busy.into()))?;
        *self.lock.lock() = file;
        self.write_info(info)?;
        Ok(true)
    }

    fn remove_stale_files(&self) {
        remove_stale_login_files(&self.home.run_dir());
        remove_file(&self.socket());
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // The lock file itself stays: if it were removed, two daemons could lock two files of the same name.
        self.lock.lock().set_len(0).unwrap_or_default();
        self.remove_stale_files();
    }
}

/// Locks the home directory. Clients never do, so a lock means that a daemon runs, starts or ends.
fn lock_home(home: &Home, socket: &Path) -> Result<Option<File>, DaemonError> {
    let open_error = |source| file_error("open", home.dir(), source);
    let dir = File::open(home.dir()).map_err(open_error)?;
    if dir.metadata().map_err(open_error)?.mode() & 0o044 != 0 {
        return Ok(None);
    }
    for _attempt in 0..LOCK_ATTEMPTS {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(dir)),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => {
                tracing::debug!(%error, "this file system has no locks for directories");
                return Ok(None);
            }
        }
        // A running daemon has written its info; one that ends releases the lock within moments.
        if DaemonInfo::find(home)?.is_some() {
            break;
        }
        thread::sleep(LOCK_RETRY_DELAY);
    }
    let pid = DaemonInfo::find(home)?.map(|info| info.pid);
    Err(DaemonError::AlreadyRunning { pid, socket: socket.to_owned() })
}

/// Whether a file is still the one at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
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
    ensure_regular(&file)?;
    // The mode of `open` counts only for a new file, and the umask reduces it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

pub(crate) fn file_error(action: &'static str, path: &Path, source: io::Error) -> DaemonError {
    DaemonError::File { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::keys::{ApiKey, KeyScope};

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
    fn removed_lock_file_admits_no_second_daemon_and_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path().join("home"));
        let instance = InstanceLock::acquire(&home).unwrap();
        let info = sample_info(&instance);
        instance.write_info(&info).unwrap();
        assert!(!instance.restore(&info).unwrap());
        let remove: [&dyn Fn(); 3] = [
            &|| fs::remove_file(home.lock_file()).unwrap(),
            &|| fs::remove_dir_all(home.run_dir()).unwrap(),
            // An editor or a sync tool replaces files.
            &|| {
                fs::remove_file(home.lock_file()).unwrap();
                File::create(home.lock_file()).unwrap();
            },
        ];
        for remove in remove {
            remove();
            let error = InstanceLock::acquire(&home).unwrap_err();
            assert!(matches!(error, DaemonError::AlreadyRunning { .. }), "{error}");
            assert!(instance.restore(&info).unwrap());
            assert_eq!(DaemonInfo::find(&home).unwrap(), Some(info.clone()));
        }
        fs::remove_dir_all(home.dir()).unwrap();
        assert!(!instance.restore(&info).unwrap());
        assert!(!home.dir().exists());
        drop(instance);
        drop(InstanceLock::acquire(&home).unwrap());
    }

    /// `flock` needs no more than read access.
    #[test]
    fn lock_of_another_user_does_not_keep_the_daemon_out() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let other = File::open(home.dir()).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        for mode in [0o755, 0o740, 0o704] {
            fs::set_permissions(home.dir(), Permissions::from_mode(mode)).unwrap();
            let instance = InstanceLock::acquire(&home).unwrap();
            instance.write_info(&sample_info(&instance)).unwrap();
            let error = InstanceLock::acquire(&home).unwrap_err();
            assert!(matches!(error, DaemonError::AlreadyRunning { pid: Some(7), .. }), "{error}");
        }
        // Locked while it was open to all.
        fs::set_permissions(home.dir(), Permissions::from_mode(0o711)).unwrap();
        let error = InstanceLock::acquire(&home).unwrap_err();
        let repair = format!("chmod 700 {}", home.dir().display());
        assert!(error.hint().is_some_and(|hint| hint.contains(&repair)), "{error:?}");
    }

    #[test]
    fn info_of_a_killed_daemon_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let instance = InstanceLock::acquire(&home).unwrap();
        instance.write_info(&sample_info(&instance)).unwrap();
        let text = fs::read(home.lock_file()).unwrap();
        drop(instance);
        File::create(home.lock_file()).unwrap().write_all(&text).unwrap();
        let _starting = InstanceLock::acquire(&home).unwrap();
        assert_eq!(DaemonInfo::find(&home).unwrap(), None);
    }

    #[test]
    fn home_that_is_not_utf8_is_an_error() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff")));
        let error = InstanceLock::acquire(&home).unwrap_err();
        assert!(error.hint().unwrap().contains("UTF-8"), "{error}");
        assert!(!home.dir().exists());
    }

    #[test]
    fn files_of_a_killed_daemon_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let instance = InstanceLock::acquire(&home).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&home.run_dir()), 0o700);
        drop(instance);
        // The state after a kill, with a directory that other users can enter.
        File::create(home.run_dir().join(SOCKET_FILE)).unwrap();
        fs::set_permissions(home.run_dir(), Permissions::from_mode(0o755)).unwrap();
        let instance = InstanceLock::acquire(&home).unwrap();
        assert!(!instance.socket().exists());
        assert_eq!(mode(&home.run_dir()), 0o700);
    }

    #[test]
    fn token_of_an_earlier_version_becomes_a_key_of_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::in_dir(dir.path());
        let (keys, instance) = (KeyFile::new(&home), InstanceLock::acquire(&home).unwrap());
        let path = home.run_dir().join(TOKEN_FILE);
        let convert = |text: &str| {
            toolrack_platform::replace(&path, text.as_bytes()).unwrap();
            instance.convert_token(&keys, Some("work"));
            assert!(!path.exists());
        };
        convert("not a token");
        instance.convert_token(&keys, None);
        assert!(keys.list().unwrap().is_empty());
        let token = Token::random().unwrap();
        convert(&format!("{}\n", token.reveal()));
        let [entry] = keys.list().unwrap().try_into().unwrap();
        let scope = KeyScope::Agent { agent: Some("work".to_owned()), server: None };
        assert_eq!((entry.name.as_str(), &entry.scope, entry.legacy), ("legacy", &scope, true));
        assert_eq!(entry.hash().id(), ApiKey::from_text(token.reveal()).hash().id());
    }

    #[test]
    fn too_long_socket_path_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            InstanceLock::acquire(&Home::in_dir(dir.path().join("a".repeat(100)))).unwrap_err();
        assert!(error.hint().unwrap().contains("shorter"), "{error}");
    }
}
