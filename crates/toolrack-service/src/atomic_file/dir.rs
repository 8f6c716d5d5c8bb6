//! An open folder, and what can be done with the files in it by name.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fsync, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::lock::{self, Lock};

/// Makes a folder for its owner alone, whatever the umask, and what is missing above it. One that is there stays as
/// it is.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Takes the rights of everybody else away from a folder that was made with them, if it is ours.
pub(crate) fn close_to_others(dir: &Path) {
    let Ok(about) = std::fs::symlink_metadata(dir) else { return };
    let is_ours = about.uid() == rustix::process::geteuid().as_raw();
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
        lock::lock(&self.fd, name, patience)
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
