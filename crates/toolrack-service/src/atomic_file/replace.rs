//! Replacing a file so that neither a crash nor a full disk leaves half of one, and nobody else's change is lost.
//!
//! **Invariant:** a file appears under its name only when all of it is on disk, and only in place of the one that
//! was seen. After an error the old one is in place. Whoever replaces a file holds the lock of its name.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{Gid, Mode, RenameFlags, Uid, fchmod, fchown};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use zeroize::Zeroizing;

use super::dir::{Folder, read_all};
use super::open_watch::Onlookers;

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
