//! Private files and directories: created for their owner only, replaced atomically, read up to a limit.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Creates a directory with mode 0700, and its missing parents. An existing one keeps its mode.
///
/// # Errors
///
/// The directory cannot be created.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates a directory that only its owner can enter, or makes an existing one so.
///
/// # Errors
///
/// The directory cannot be created, belongs to another user or is a symbolic link.
pub fn ensure_private_dir(dir: &Path) -> io::Result<()> {
    create_private_dir(dir)?;
    // Not through a link: a link of another user would lead to a directory of their choice.
    let metadata = fs::symlink_metadata(dir)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        let reason = "not a directory owned by this user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes the permissions of group and others from a file or directory of this user, which an earlier version of the
/// program or another program may have created.
pub fn make_private(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    let mode = metadata.permissions().mode();
    let is_ours = metadata.uid() == geteuid().as_raw();
    // A sticky directory, such as `/tmp`, is meant to be shared.
    let (is_open, is_sticky) = (mode & 0o077 != 0, mode & 0o1000 != 0);
    if metadata.is_symlink() || is_sticky || !is_open || !is_ours {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & 0o700)) {
        tracing::warn!(path = %path.display(), %error, "cannot make it private; others may read it");
    }
}

/// Options that create a file with mode 0600 and refuse a symbolic link. A FIFO is opened without waiting for its other
/// end; [`ensure_regular`] refuses it.
pub fn private_options() -> OpenOptions {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(i32::try_from(flags).unwrap_or_default());
    options
}

/// Checks that a file is a regular one: neither a directory, nor a FIFO that blocks, nor an endless device.
///
/// # Errors
///
/// It is not.
pub fn ensure_regular(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(())
}

/// Replaces a file atomically, with mode 0600: readers see the old content or the new one, never a part. Its directory
/// is created if needed, and made private.
///
/// # Errors
///
/// The file cannot be written. The old file is then still in place.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    create_private_dir(dir)?;
    make_private(dir);
    let temporary = temporary_path(path);
    let outcome = write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    // The content may be secret, so no part of it stays behind.
    if outcome.is_err() && fs::remove_file(&temporary).is_err() {
        tracing::debug!(path = %temporary.display(), "cannot remove temporary file");
    }
    outcome.and_then(|()| sync_dir(path))
}

/// Removes a file, also after a power failure. Returns whether it existed.
///
/// # Errors
///
/// The file cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // `create_new` does not follow a symlink, and the mode holds from the first byte on.
    let mut file = private_options().write(true).create_new(true).open(path)?;
    file.write_all(content)?;
    // Before the rename, or a crash of the system could leave an empty file under the final name.
    file.sync_all()
}

/// A rename or a removal survives a power failure only after its directory is synced.
fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// A path in the same directory that no other writer uses, in this process or another.
fn temporary_path(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}", std::process::id()))
}

/// Reads a text file, unless it is larger than `limit_bytes`.
///
/// # Errors
///
/// The file cannot be read, is too large, is not a regular file or not UTF-8.
pub fn read_at_most(path: &Path, limit_bytes: u64) -> io::Result<String> {
    into_text(read_file_at_most(path, limit_bytes)?)
}

/// Reads a text file that may also be a pipe, such as `/dev/stdin`, for which it waits.
///
/// # Errors
///
/// The file cannot be read, is too large or is not UTF-8.
pub fn read_pipe_at_most(path: &Path, limit_bytes: u64) -> io::Result<String> {
    into_text(read_limited(&File::open(path)?, limit_bytes)?)
}

/// Reads a file, unless it is larger than `limit_bytes`.
///
/// # Errors
///
/// The file cannot be read, is too large or is not a regular file.
pub fn read_file_at_most(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    // NONBLOCK: opening a FIFO must not wait for its other end.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    ensure_regular(&file)?;
    read_limited(&file, limit_bytes)
}

fn into_text(content: Vec<u8>) -> io::Result<String> {
    let not_text = |_not_utf8| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8");
    String::from_utf8(content).map_err(not_text)
}

fn read_limited(file: &File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Limits the read itself and not the size from the metadata: the file may grow, or be a pipe.
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut content)?;
    let is_within = u64::try_from(content.len()).is_ok_and(|length| length <= limit_bytes);
    let reason = || format!("larger than {limit_bytes} bytes");
    if is_within { Ok(content) } else { Err(io::Error::new(io::ErrorKind::FileTooLarge, reason())) }
}

/// Reads a whole open file from its beginning. It must be a regular file of at most `max_bytes` bytes.
///
/// # Errors
///
/// The file cannot be read, is too large or is not a regular file.
pub fn read_open_file(file: &File, max_bytes: usize) -> io::Result<Vec<u8>> {
    ensure_regular(file)?;
    let metadata = file.metadata()?;
    // One allocation: a vector that grows would leave copies of a secret in freed memory.
    let expected = usize::try_from(metadata.len()).unwrap_or(max_bytes).min(max_bytes);
    // The spare bytes let `read_to_end` find the end of the file without growing the vector.
    let mut bytes = Vec::with_capacity(expected + 64);
    let mut file = file;
    file.rewind()?;
    // One byte more than allowed, to tell a file of the maximum size from a larger one.
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_is_atomic_and_read_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/file");
        replace(&path, b"one").unwrap();
        replace(&path, b"three").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), "three");
        replace(&path, &[0xff]).unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        replace(&path, b"three").unwrap();
        assert_eq!(read_file_at_most(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(replace(&path.join("below"), b"x").is_err());
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let kind = |path: &Path| read_file_at_most(path, 5).unwrap_err().kind();
        for path in [&fifo, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(kind(path), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(kind(dir.path()), io::ErrorKind::IsADirectory);
        // No reader: the open fails instead of waiting for one.
        assert!(private_options().append(true).open(&fifo).is_err());
        assert!(ensure_regular(&private_options().read(true).open(&fifo).unwrap()).is_err());
        let error = read_pipe_at_most(Path::new("/dev/zero"), 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_and_directories_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, path) = (dir.path().join("data/cache"), dir.path().join("data/cache/file"));
        replace(&path, b"one").unwrap();
        assert_eq!(
            [mode(&dir.path().join("data")), mode(&inner), mode(&path)],
            [0o700, 0o700, 0o600]
        );
        for (path, loose) in [(&inner, 0o755), (&path, 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(loose)).unwrap();
        }
        make_private(&path);
        assert_eq!(mode(&path), 0o600);
        replace(&path, b"two").unwrap();
        assert_eq!([mode(&inner), mode(&path)], [0o700, 0o600]);
        // A shared directory is left alone.
        fs::set_permissions(&inner, Permissions::from_mode(0o1777)).unwrap();
        make_private(&inner);
        assert_eq!(mode(&inner), 0o777);
    }

    #[test]
    fn directory_becomes_private_unless_it_is_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        ensure_private_dir(&open).unwrap();
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(ensure_private_dir(&link).is_err());
        fs::set_permissions(&open, Permissions::from_mode(0o750)).unwrap();
        make_private(&link);
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o750);
        make_private(&open);
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
    }
}
