//! Private directories, file locks and atomic replacement of files.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
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

use crate::error::{ErrorCode, ServiceError, ServiceFault};
#[cfg(target_os = "linux")]
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;

/// Makes a folder for its owner alone, whatever the umask, and what is missing above it. One that is there stays as
/// it is.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Takes the rights of everybody else away from a folder that was made with them, if it is ours.
pub(crate) fn close_to_others(dir: &Path) {
    let Ok(about) = std::fs::symlink_metadata(dir) else { return };
    let is_ours = about.uid() == geteuid().as_raw();
    let mode = about.permissions().mode();
    let is_open = mode & 0o077 != 0;
    if !about.is_dir() || !is_ours || !is_open {
        return;
    }
    if let Err(error) = std::fs::set_permissions(dir, Permissions::from_mode(mode & 0o700)) {
        tracing::warn!(dir = %dir.display(), %error, "others may look into it, and that cannot be changed");
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
}

impl Folder {
    /// A folder that is there, or `None`.
    pub(crate) fn open(dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, dir, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder that is made, for its owner alone, if it is not there.
    pub(crate) fn make(dir: &Path) -> io::Result<Self> {
        if let Some(folder) = Self::open(dir)? {
            return Ok(folder);
        }
        make_private(dir)?;
        if let Some(above) = dir.parent().filter(|it| *it != Path::new("")) {
            File::open(above)?.sync_all()?;
        }
        Self::open(dir)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The folder as a file, to ask for its owner and mode.
    pub(crate) fn as_file(&self) -> io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }

    pub(crate) fn lock(&self, name: &OsStr, patience: Duration) -> io::Result<Lock> {
        lock(&self.fd, name, patience)
    }

    /// Removes what a save that was killed has left behind.
    pub(crate) fn sweep(&self, beside: &OsStr) -> io::Result<()> {
        match unlinkat(&self.fd, beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file, and says whether there was one.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<bool> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A file to be read, or `None`. A link is not followed.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        // Not waiting for the other end of a pipe that somebody put there.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Which file has a name now, whatever it says.
    pub(super) fn inode(&self, name: &OsStr) -> io::Result<Option<u64>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.st_ino)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file that only its owner can read, or an error if there is something already.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Gives a file another name, and with it whatever the flags say.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.fd, from, &self.fd, to, flags)
    }

    /// Waits until names in this folder are on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.fd)?)
    }

    /// Removes what is left beside the file, or leaves it to the next save.
    pub(super) fn tidy(&self, beside: &OsStr) {
        if let Err(error) = self.sweep(beside) {
            tracing::warn!(%error, "a temporary file stays until the next save");
        }
    }
}

/// A whole file from its beginning. Anything but a plain file of at most `largest` bytes is refused.
pub(crate) fn read_all(file: &File, largest: usize) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    // One allocation, so that a secret leaves no copies behind.
    let expected = usize::try_from(metadata.len()).unwrap_or(largest).min(largest);
    let mut bytes = Vec::with_capacity(expected + 64);
    let mut file = file;
    file.rewind()?;
    file.take(largest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > largest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The longest pause between two looks at the lock.
const LOCK_POLL: Duration = Duration::from_millis(8);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: OwnedFd,
}

/// Waits for the lock of a file, and at most for `patience`. `TimedOut` is the error if that is over.
fn lock(dir: impl AsFd, name: &OsStr, patience: Duration) -> io::Result<Lock> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut waited = Duration::ZERO;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
        if waited >= patience {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // By chance, so that of several who wait none is always the last to look.
        let pause = LOCK_POLL.mul_f64(fastrand::f64().max(0.1));
        thread::sleep(pause);
        waited += pause;
    }
}

/// A file as it was read, or that there was none, with an eye on it ever since. Not to be shown: it may be a secret.
pub(crate) struct Seen(Option<Old>);

struct Old {
    file: File,
    inode: u64,
    onlookers: Onlookers,
    bytes: Zeroizing<Vec<u8>>,
}

/// What is to stand in the place of a file.
#[derive(Clone, Copy)]
pub(crate) struct Replacement<'a> {
    /// The name of the file.
    pub(crate) name: &'a OsStr,
    /// The name under which it is written first.
    pub(crate) beside: &'a OsStr,
    /// What it is to say.
    pub(crate) bytes: &'a [u8],
    /// Who may read it then.
    pub(crate) readers: Readers,
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Its owner.
    Owner,
    /// Whoever could read the one before it; its owner, if there was none.
    AsBefore,
}

/// How an attempt to replace a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// It is in place and on disk.
    Done,
    /// Somebody else has changed the file meanwhile, and theirs is in place.
    Meanwhile,
}

impl Seen {
    /// What the file said.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|it| it.bytes.as_slice())
    }
}

impl Old {
    /// Whether it is still the file of this name, and still says what it said.
    fn is_at(&self, folder: &Folder, name: &OsStr) -> io::Result<bool> {
        Ok(folder.inode(name)? == Some(self.inode) && says(&self.file, &self.bytes)?)
    }
}

impl Folder {
    /// Reads a file that is to be replaced.
    pub(crate) fn see(&self, name: &OsStr, largest: usize) -> io::Result<Seen> {
        let Some(file) = self.open_file(name)? else { return Ok(Seen(None)) };
        let onlookers = Onlookers::of(&file);
        let bytes = Zeroizing::new(read_all(&file, largest)?);
        let inode = file.metadata()?.ino();
        Ok(Seen(Some(Old { file, inode, onlookers, bytes })))
    }

    /// Puts a file in place of the one that was seen, or of none, if that is still how it is.
    pub(crate) fn publish(&self, seen: &Seen, it: Replacement<'_>) -> io::Result<Published> {
        self.sweep(it.beside)?;
        let old = seen.0.as_ref();
        let published = self.fill(it, old).and_then(|()| match old {
            None => self.appear(it),
            Some(old) => self.swap(old, it),
        });
        self.tidy(it.beside);
        published
    }

    /// Writes the new file, all of it and down to the disk.
    fn fill(&self, it: Replacement<'_>, old: Option<&Old>) -> io::Result<()> {
        let mut file = self.create(it.beside)?;
        let old = old.filter(|_| it.readers == Readers::AsBefore);
        let old = old.map(|it| it.file.metadata()).transpose()?;
        let mode = old.as_ref().map_or(0o600, |it| it.mode() & 0o777);
        if let Some(old) = old.filter(is_foreign) {
            // Only root can, and for everybody else their own file is as good.
            let owner = (Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
            fchown(&file, owner.0, owner.1).unwrap_or_default();
        }
        fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(it.bytes)?;
        // A disk that fails here has lost pages. Asking it again would say all is well, so the file is given up.
        file.sync_all()
    }

    /// Into an empty place.
    fn appear(&self, it: Replacement<'_>) -> io::Result<Published> {
        match self.rename(it.beside, it.name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Published::Meanwhile),
            Err(error) if is_unable(error) => {
                self.rename(it.beside, it.name, RenameFlags::empty())?;
            }
            Err(error) => return Err(error.into()),
        }
        // Without an old file to go back to, going back is to have none.
        self.sync().or_else(|error| self.sweep(it.name).and(Err(error)))?;
        Ok(Published::Done)
    }

    /// The two files change places in one step. What stood there until that very moment can then be looked at, and
    /// be put back if it is not what the change was made for.
    fn swap(&self, old: &Old, it: Replacement<'_>) -> io::Result<Published> {
        if !old.is_at(self, it.name)? {
            return Ok(Published::Meanwhile);
        }
        let exchange = || self.rename(it.beside, it.name, RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Published::Meanwhile),
            // Some file systems cannot do it. There a moment remains in which a person's change can be lost.
            Err(error) if is_unable(error) => {
                self.rename(it.beside, it.name, RenameFlags::empty())?;
                return self.sync().map(|()| Published::Done);
            }
            Err(error) => return Err(error.into()),
        }
        // First at once, so that nobody reads ours for long if it has to go; then again when all is settled.
        let mut expected = old.is_at(self, it.beside);
        if let Ok(true) = expected {
            let synced = self.sync();
            old.onlookers.wait();
            expected = synced.and_then(|()| old.is_at(self, it.beside));
        }
        if let Ok(true) = expected {
            return Ok(Published::Done);
        }
        exchange()?;
        // If a person has saved once more meanwhile, that one is the newest and is put back.
        let ours = self.open_file(it.beside)?.map(|file| says(&file, it.bytes)).transpose()?;
        if ours != Some(true) {
            exchange()?;
        }
        expected.and_then(|_other| self.sync()).map(|()| Published::Meanwhile)
    }
}

/// Whether a file system does not know a way to rename.
fn is_unable(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn is_foreign(metadata: &Metadata) -> bool {
    metadata.uid() != geteuid().as_raw() || metadata.gid() != getegid().as_raw()
}

fn says(file: &File, bytes: &[u8]) -> io::Result<bool> {
    match read_all(file, bytes.len()).map(Zeroizing::new) {
        Ok(found) => Ok(*found == bytes),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(false),
        Err(error) => Err(error),
    }
}

/// How long somebody may have the file open before we give up on them.
#[cfg(target_os = "linux")]
const OPEN_LIMIT: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
const OPEN_POLL: Duration = Duration::from_millis(1);

/// The openings of one file.
#[derive(Debug)]
pub(super) struct Onlookers {
    events: Option<OwnedFd>,
}

impl Onlookers {
    /// Begins to look. Where the kernel cannot tell, nobody is ever seen.
    pub(super) fn of(file: &File) -> Self {
        Self { events: look(file) }
    }

    /// Waits until everybody who came has gone.
    pub(super) fn wait(&self) {
        if let Some(events) = &self.events {
            wait_closed(events);
        }
    }
}

#[cfg(target_os = "linux")]
fn look(file: &File) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;

    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
    add_watch(&events, path, flags).ok()?;
    Some(events)
}

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
        if n_open <= 0 || waited >= OPEN_LIMIT {
            return;
        }
        thread::sleep(OPEN_POLL);
        waited += OPEN_POLL;
    }
}

#[cfg(not(target_os = "linux"))]
fn look(_file: &File) -> Option<OwnedFd> {
    None
}

#[cfg(not(target_os = "linux"))]
fn wait_closed(_events: &OwnedFd) {}

/// The error of something that could not be done with a file: `read`, `saved`.
pub(crate) fn trouble(done: &str, path: &Path, error: io::Error) -> ServiceError {
    let (code, reason, hint) = verdict(&error);
    let reason = reason.map_or_else(|| error.to_string(), str::to_owned);
    let message = format!("`{}` cannot be {done}: {reason}", path.display());
    let fault = ServiceFault::new(code, message);
    match hint {
        Some(hint) => fault.hint(hint).into(),
        None => fault.into(),
    }
}

type Verdict = (ErrorCode, Option<&'static str>, Option<&'static str>);

fn verdict(error: &io::Error) -> Verdict {
    use io::ErrorKind as Kind;
    let unavailable = |reason, hint| (ErrorCode::ServiceUnavailable, Some(reason), Some(hint));
    if Errno::from_io_error(error) == Some(Errno::LOOP) {
        let hint = "remove the link, or let it lead to a file";
        return (ErrorCode::ValidationError, Some("its links lead nowhere good"), Some(hint));
    }
    match error.kind() {
        Kind::TimedOut => unavailable(
            "another program is changing it and does not come to an end",
            "see whether a `toolrack` hangs, and end it",
        ),
        Kind::StorageFull | Kind::QuotaExceeded => {
            unavailable("the disk is full", "make room and try again; nothing was changed")
        }
        Kind::PermissionDenied => unavailable(
            "permission denied",
            "check the owner and the mode of the file and its folder",
        ),
        Kind::ReadOnlyFilesystem => unavailable(
            "the disk cannot be written",
            "mount it for writing, or set `TOOLRACK_HOME` to a folder elsewhere",
        ),
        Kind::FileTooLarge => {
            (ErrorCode::ValidationError, Some("it is too large"), Some("look at what it is"))
        }
        Kind::IsADirectory => {
            (ErrorCode::ValidationError, Some("it is a folder"), Some("move it away"))
        }
        Kind::InvalidInput => {
            (ErrorCode::ValidationError, Some("it is no plain file"), Some("move it away"))
        }
        _ => (ErrorCode::ServiceUnavailable, None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errno: Errno, expected: &str) {
        let error = trouble("saved", Path::new("/a/b.toml"), errno.into());
        let hint = error.hint().unwrap_or_default();
        assert_eq!(format!("{} {error} | {hint}", error.code()), expected);
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        check(
            Errno::NOSPC,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: the disk is full | make room and try again; nothing was changed",
        );
        check(
            Errno::ACCESS,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: permission denied | check the owner and the mode of the file and its folder",
        );
        check(
            Errno::ROFS,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: the disk cannot be written | mount it for writing, or set `TOOLRACK_HOME` to a folder elsewhere",
        );
        check(
            Errno::LOOP,
            "VALIDATION_ERROR `/a/b.toml` cannot be saved: its links lead nowhere good | remove the link, or let it lead to a file",
        );
        check(
            Errno::IO,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: Input/output error (os error 5) | ",
        );
    }
}
