//! A folder in which files are replaced so that neither a crash nor a full disk leaves half a file.
//!
//! **Invariant:** a file appears under its name only when all of it is on disk. Whoever calls `publish` or `sweep`
//! holds the lock of the name.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fsync, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::lock::{self, Lock};
use super::onlooker::Onlookers;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
}

/// What stands in a place, and what is to stand there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replacement<'a> {
    /// The name of the file.
    pub(crate) name: &'a OsStr,
    /// The name under which the new file is written first.
    pub(crate) beside: &'a OsStr,
    /// What the file says, or that there is none.
    pub(crate) present: Option<&'a [u8]>,
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
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
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
        lock::lock(&self.fd, name, patience)
    }

    /// Removes what a save that was killed has left behind.
    pub(crate) fn sweep(&self, beside: &OsStr) -> io::Result<()> {
        match unlinkat(&self.fd, beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A whole file, or `None`. Anything but a plain file of at most `largest` bytes is refused.
    pub(crate) fn read(&self, name: &OsStr, largest: usize) -> io::Result<Option<Vec<u8>>> {
        self.open_file(name)?.map(|file| read_all(&file, largest)).transpose()
    }

    /// Removes a file, and says whether there was one.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<bool> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a file in place of one that says `present`, or of none, but only if that is what stands there.
    ///
    /// After an error the old file is in place.
    pub(crate) fn publish(&self, it: Replacement<'_>) -> io::Result<Published> {
        let old = self.open_file(it.name)?;
        let onlookers = old.as_ref().map(Onlookers::of);
        self.write_beside(it, old.as_ref())?;
        let published = match (it.present, onlookers) {
            (None, None) => self.appear(it.name, it.beside),
            (Some(present), Some(onlookers)) => self.swap(it, present, &onlookers),
            _ => Ok(Published::Meanwhile),
        };
        self.tidy(it.beside);
        published
    }

    /// Into an empty place.
    fn appear(&self, name: &OsStr, beside: &OsStr) -> io::Result<Published> {
        match renameat_with(&self.fd, beside, &self.fd, name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Published::Meanwhile),
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&self.fd, beside, &self.fd, name)?,
            Err(error) => return Err(error.into()),
        }
        match self.sync() {
            Ok(()) => Ok(Published::Done),
            // Without an old file to go back to, going back is to have none.
            Err(error) => {
                unlinkat(&self.fd, name, AtFlags::empty()).map_err(io::Error::from).and(Err(error))
            }
        }
    }

    /// The two files change places in one step. What stood there until that very moment can then be looked at, and
    /// be put back if it is not what the change was made for.
    fn swap(
        &self,
        it: Replacement<'_>,
        present: &[u8],
        onlookers: &Onlookers,
    ) -> io::Result<Published> {
        if !self.says(it.name, present)? {
            return Ok(Published::Meanwhile);
        }
        let exchange =
            || renameat_with(&self.fd, it.beside, &self.fd, it.name, RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Published::Meanwhile),
            // Some file systems cannot do it. There a moment remains in which a person's change can be lost.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                renameat(&self.fd, it.beside, &self.fd, it.name)?;
                return self.sync().map(|()| Published::Done);
            }
            Err(error) => return Err(error.into()),
        }
        // First at once, so that nobody reads ours for long if it has to go; then again when all is settled.
        let mut expected = self.says(it.beside, present);
        if let Ok(true) = expected {
            let synced = self.sync();
            onlookers.wait();
            expected = synced.and_then(|()| self.says(it.beside, present));
        }
        if let Ok(true) = expected {
            return Ok(Published::Done);
        }
        exchange()?;
        // If a person has saved once more meanwhile, that one is the newest and is put back.
        if !self.says(it.beside, it.bytes)? {
            exchange()?;
        }
        expected.and_then(|_other| self.sync()).map(|()| Published::Meanwhile)
    }

    fn says(&self, name: &OsStr, bytes: &[u8]) -> io::Result<bool> {
        self.open_file(name)?.map_or(Ok(false), |file| same(&file, bytes))
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

    /// Writes a new file, all of it and down to the disk, with mode and owner of the old one.
    fn write_beside(&self, it: Replacement<'_>, old: Option<&File>) -> io::Result<()> {
        self.sweep(it.beside)?;
        let filled = self.fill(it, old);
        if filled.is_err() {
            self.tidy(it.beside);
        }
        filled
    }

    fn fill(&self, it: Replacement<'_>, old: Option<&File>) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.fd, it.beside, flags, private)?);
        let old =
            old.filter(|_| it.readers == Readers::AsBefore).map(File::metadata).transpose()?;
        let mode = old.as_ref().map_or(private, |it| Mode::from_raw_mode(it.mode() & 0o777));
        if let Some(old) = old.filter(is_foreign) {
            // Only root can, and for everybody else their own file is as good.
            let owner = (Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
            fchown(&file, owner.0, owner.1).unwrap_or_default();
        }
        fchmod(&file, mode)?;
        file.write_all(it.bytes)?;
        // A disk that fails here has lost pages. Asking it again would say all is well, so the file is given up.
        file.sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.fd)?)
    }

    /// Removes what is left beside the file, or leaves it to the next save.
    fn tidy(&self, beside: &OsStr) {
        if let Err(error) = self.sweep(beside) {
            tracing::warn!(%error, "a temporary file stays until the next save");
        }
    }
}

fn is_foreign(metadata: &fs::Metadata) -> bool {
    metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.gid() != rustix::process::getegid().as_raw()
}

fn same(file: &File, bytes: &[u8]) -> io::Result<bool> {
    match read_all(file, bytes.len()) {
        Ok(found) => Ok(found == bytes),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(false),
        Err(error) => Err(error),
    }
}

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
    let mut file = file.take(largest as u64 + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() > largest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}
