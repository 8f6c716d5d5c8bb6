//! Directory access by descriptor: file locks, and atomic replacement of files that other programs edit too.
//!
//! Replacing a file: lock, read a [`FileSnapshot`], write a temporary file, fsync it, and exchange the two names in
//! one step. The old file is then still reachable under the temporary name, so an edit that another program made in
//! between is found and put back.
//!
//! **Invariant:** a file appears under its name only when all of it is on disk, and only in place of the file that
//! the snapshot read. After an error the old file is in place. The caller of [`Directory::replace`] holds the lock for the
//! file's name.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, flock,
    fsync, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use zeroize::Zeroizing;

use crate::private_file::{create_private_dir, read_open_file};
#[cfg(target_os = "linux")]
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;

/// An open directory; files in it are named relative to its descriptor.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

impl Directory {
    /// Opens a directory; `None` if it does not exist.
    pub fn open(dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(if_exists(openat(CWD, dir, flags, Mode::empty()))?.map(|fd| Self { fd }))
    }

    /// Opens a directory, creating it with mode 0700 if needed.
    pub fn create(dir: &Path) -> io::Result<Self> {
        if let Some(dir) = Self::open(dir)? {
            return Ok(dir);
        }
        create_private_dir(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| *parent != Path::new("")) {
            // The entry of the new directory is durable only after an fsync of its parent.
            File::open(parent)?.sync_all()?;
        }
        Self::open(dir)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The directory as a file, to read its owner and mode.
    pub fn as_file(&self) -> io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }

    /// Takes an exclusive lock on the file `name`, which is created if needed and never removed: a lock on an
    /// unlinked file would exclude no one who opens the name afterwards. Polls for at most `timeout`; then the error is
    /// `TimedOut`.
    pub fn lock(&self, name: &OsStr, timeout: Duration) -> io::Result<FileLock> {
        // CLOEXEC: a server that inherits the descriptor would hold the lock as long as it runs.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut waited = Duration::ZERO;
        loop {
            // `flock` belongs to the open file, so it excludes other threads of this process too.
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(FileLock { _file: file }),
                // Polled, because a blocking `flock` has no timeout.
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(other) => return Err(other.into()),
            }
            if waited >= timeout {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Random, so that of several waiting processes none is always the last to try.
            let pause = LOCK_POLL.mul_f64(fastrand::f64().max(0.1));
            thread::sleep(pause);
            waited += pause;
        }
    }

    /// Removes a file that may be missing, such as the temporary file of a killed save.
    pub fn remove_if_exists(&self, name: &OsStr) -> io::Result<()> {
        if_exists(unlinkat(&self.fd, name, AtFlags::empty())).map(|_removed| ())
    }

    /// Removes a file. Returns whether it existed.
    pub fn remove(&self, name: &OsStr) -> io::Result<bool> {
        match if_exists(unlinkat(&self.fd, name, AtFlags::empty()))? {
            Some(()) => self.sync().map(|()| true),
            None => Ok(false),
        }
    }

    /// Opens a file for reading; `None` if it does not exist. Symbolic links are not followed.
    pub fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        // NONBLOCK: opening a FIFO under this name must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(if_exists(openat(&self.fd, name, flags, Mode::empty()))?.map(File::from))
    }

    /// `renameat2` within this directory.
    fn rename(&self, from: &OsStr, to: &OsStr, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.fd, from, &self.fd, to, flags)
    }

    /// Waits until renames in this directory are on disk.
    fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.fd)?)
    }
}

/// The value, or `None` if there is no such file.
fn if_exists<T>(outcome: Result<T, Errno>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Longest pause between two attempts to take a lock.
const LOCK_POLL: Duration = Duration::from_millis(8);

/// An exclusive `flock`, held until dropped. The kernel releases it when the holder dies.
#[derive(Debug)]
pub struct FileLock {
    _file: OwnedFd,
}

/// A file as it was read, or its absence. It is watched from then on. No `Debug`: it may hold a secret.
#[expect(missing_debug_implementations, reason = "its content may be secret")]
pub struct FileSnapshot(Option<OldFile>);

struct OldFile {
    file: File,
    inode: u64,
    /// Sees programs that open the file.
    open_watch: Option<OwnedFd>,
    bytes: Zeroizing<Vec<u8>>,
}

/// The new content of a file.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "its content may be secret")]
pub struct Replacement<'a> {
    /// The name of the file.
    pub name: &'a OsStr,
    /// The temporary name under which it is written first.
    pub temp_name: &'a OsStr,
    /// The content.
    pub bytes: &'a [u8],
    /// Its permissions.
    pub mode: FileMode,
}

/// Permissions of a replaced file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// Mode 0600.
    Private,
    /// Mode and owner of the file it replaces; 0600 if there was none.
    Preserve,
}

/// Outcome of [`Directory::replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// The new file is in place and on disk.
    Replaced,
    /// Another program has changed the file since the snapshot; its version is in place.
    Conflict,
}

impl FileSnapshot {
    /// The content; `None` if there was no file.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|file| file.bytes.as_slice())
    }
}

impl OldFile {
    /// Whether `name` still refers to this file, and its content is still the same.
    fn is_unchanged_at(&self, dir: &Directory, name: &OsStr) -> io::Result<bool> {
        let stat = if_exists(statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW))?;
        let is_same_file = stat.is_some_and(|stat| stat.st_ino == self.inode);
        Ok(is_same_file && has_content(&self.file, &self.bytes)?)
    }
}

impl Directory {
    /// Reads a file that is going to be replaced.
    pub fn snapshot(&self, name: &OsStr, max_bytes: usize) -> io::Result<FileSnapshot> {
        let Some(file) = self.open_file(name)? else { return Ok(FileSnapshot(None)) };
        // Before the first read, so that no later open goes unseen.
        let open_watch = watch_opens(&file);
        let bytes = Zeroizing::new(read_open_file(&file, max_bytes)?);
        // An editor that saves by rename gives the name another inode; one that writes in place is
        // found by the content.
        let inode = file.metadata()?.ino();
        Ok(FileSnapshot(Some(OldFile { file, inode, open_watch, bytes })))
    }

    /// Replaces the file of the snapshot, or its absence, if that is still the current state.
    pub fn replace(
        &self,
        snapshot: &FileSnapshot,
        new: Replacement<'_>,
    ) -> io::Result<ReplaceOutcome> {
        // An earlier attempt of the same save may have left it, and `write_temp` insists on
        // a free name.
        self.remove_if_exists(new.temp_name)?;
        let old = snapshot.0.as_ref();
        let outcome = self.write_temp(new, old).and_then(|()| match old {
            None => self.rename_into_empty(new),
            Some(old) => self.exchange(old, new),
        });
        if let Err(error) = self.remove_if_exists(new.temp_name) {
            tracing::warn!(%error, "cannot remove a temporary file; the next save does");
        }
        outcome
    }

    /// Writes the new file under its temporary name, down to the disk.
    fn write_temp(&self, new: Replacement<'_>, old: Option<&OldFile>) -> io::Result<()> {
        // EXCL: do not write through a link that another program put under this name.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = openat(&self.fd, new.temp_name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(fd);
        let old = old.filter(|_| new.mode == FileMode::Preserve);
        let old = old.map(|old| old.file.metadata()).transpose()?;
        let mode = old.as_ref().map_or(0o600, |old| old.mode() & 0o777);
        if let Some(old) = old.filter(has_other_owner) {
            // Only root may change the owner. Anyone else writes a file of their own, which serves as well.
            let owner = (Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
            fchown(&file, owner.0, owner.1).unwrap_or_default();
        }
        // Not left to `openat`, whose mode the umask reduces.
        fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(new.bytes)?;
        // Never retry a failed fsync: the kernel has dropped the dirty pages, and a second call would report
        // success. The file is given up instead.
        file.sync_all()
    }

    /// Renames the new file to a name that was free at the snapshot.
    fn rename_into_empty(&self, new: Replacement<'_>) -> io::Result<ReplaceOutcome> {
        match self.rename(new.temp_name, new.name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Another program has created the file since the snapshot; NOREPLACE leaves its
            // version in place.
            Err(Errno::EXIST) => return Ok(ReplaceOutcome::Conflict),
            Err(error) if is_unsupported(error) => {
                self.rename(new.temp_name, new.name, RenameFlags::empty())?;
            }
            Err(error) => return Err(error.into()),
        }
        // The rename may not be durable. The old state was "no file", so that is what the error leaves.
        self.sync().or_else(|error| self.remove_if_exists(new.name).and(Err(error)))?;
        Ok(ReplaceOutcome::Replaced)
    }

    /// Exchanges the new file and the old one in one step. The file that was in place up to that moment is then
    /// checked, and put back if it is not the one the change was made for.
    fn exchange(&self, old: &OldFile, new: Replacement<'_>) -> io::Result<ReplaceOutcome> {
        if !old.is_unchanged_at(self, new.name)? {
            return Ok(ReplaceOutcome::Conflict);
        }
        let exchange = || self.rename(new.temp_name, new.name, RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            // A person has deleted the file meanwhile, and it must not come back.
            Err(Errno::NOENT) => return Ok(ReplaceOutcome::Conflict),
            // Without RENAME_EXCHANGE (some file systems) an edit between the check above and the rename is lost.
            Err(error) if is_unsupported(error) => {
                self.rename(new.temp_name, new.name, RenameFlags::empty())?;
                return self.sync().map(|()| ReplaceOutcome::Replaced);
            }
            Err(error) => return Err(error.into()),
        }
        // Check at once, so that a wrong replacement is visible only briefly; and again after the wait below, because
        // a program that opened the old file before the exchange may still be writing to it.
        let mut expected = old.is_unchanged_at(self, new.temp_name);
        if let Ok(true) = expected {
            let synced = self.sync();
            old.open_watch.iter().for_each(wait_closed);
            expected = synced.and_then(|()| old.is_unchanged_at(self, new.temp_name));
        }
        if let Ok(true) = expected {
            return Ok(ReplaceOutcome::Replaced);
        }
        exchange()?;
        // The temporary name should now hold our file. If it does not, another program saved a newer version in the
        // meantime, and that version goes back into place.
        let ours =
            self.open_file(new.temp_name)?.map(|file| has_content(&file, new.bytes)).transpose()?;
        if ours != Some(true) {
            exchange()?;
        }
        expected.and_then(|_other| self.sync()).map(|()| ReplaceOutcome::Conflict)
    }
}

/// Whether the file system lacks a `renameat2` flag.
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn has_other_owner(metadata: &Metadata) -> bool {
    metadata.uid() != geteuid().as_raw() || metadata.gid() != getegid().as_raw()
}

fn has_content(file: &File, bytes: &[u8]) -> io::Result<bool> {
    match read_open_file(file, bytes.len()).map(Zeroizing::new) {
        Ok(found) => Ok(*found == bytes),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(false),
        Err(error) => Err(error),
    }
}

/// Longest wait for other programs to close the file. Editors hold it open for milliseconds.
#[cfg(target_os = "linux")]
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
const OPEN_POLL: Duration = Duration::from_millis(1);

/// Watches other programs opening and closing one file (inotify), so that a replacement can wait for writers whose
/// data would be lost with the old file. `None` if inotify is not available.
///
/// A program that opened the file before the watch began, and writes after the replacement, is not seen. Outside of
/// Linux nothing is seen.
#[cfg(target_os = "linux")]
fn watch_opens(file: &File) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;

    // By descriptor: the path may already name another file.
    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // `OPEN` does not tell readers from writers, so both kinds of close are counted against it.
    let flags = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
    add_watch(&events, path, flags).ok()?;
    Some(events)
}

/// Waits until every program that opened the file has closed it, at most [`CLOSE_TIMEOUT`].
#[cfg(target_os = "linux")]
fn wait_closed(events: &OwnedFd) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut buffer);
    let mut n_open = 0_i64;
    let mut waited = Duration::ZERO;
    loop {
        while let Ok(event) = reader.next() {
            n_open += if event.events().contains(ReadFlags::OPEN) { 1 } else { -1 };
        }
        // Negative if a program closes the file that had it open before the watch began.
        if n_open <= 0 || waited >= CLOSE_TIMEOUT {
            return;
        }
        thread::sleep(OPEN_POLL);
        waited += OPEN_POLL;
    }
}

#[cfg(not(target_os = "linux"))]
fn watch_opens(_file: &File) -> Option<OwnedFd> {
    None
}

#[cfg(not(target_os = "linux"))]
fn wait_closed(_events: &OwnedFd) {}
