//! Atomic, private file writes, and reads with a size limit.
//!
//! **Invariant:** only the owner can read a file that is written here, regardless of the umask.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file atomically: readers see the old content or the new, never a part.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // An existing directory may have wider permissions, from an earlier version of the program.
    make_private(dir);
    let temporary = temporary_path(path);
    let outcome = write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if outcome.is_err() && fs::remove_file(&temporary).is_err() {
        tracing::debug!(path = %temporary.display(), "cannot remove temporary file");
    }
    outcome
}

/// Removes the permissions of group and others from a file or directory.
pub(crate) fn make_private(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    let mode = metadata.permissions().mode();
    let (is_open, is_sticky) = (mode & 0o077 != 0, mode & 0o1000 != 0);
    // A sticky directory, such as `/tmp`, is meant to be shared.
    if metadata.is_symlink() || is_sticky || !is_open {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & 0o700)) {
        tracing::warn!(path = %path.display(), %error, "cannot make it private; others may read it");
    }
}

/// Reads a file, unless it is larger than `limit_bytes`.
pub(crate) fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Limits the read itself and not the size from the metadata: the file may grow, or be a pipe.
    File::open(path)?.take(limit_bytes.saturating_add(1)).read_to_end(&mut content)?;
    let is_within = u64::try_from(content.len()).is_ok_and(|length| length <= limit_bytes);
    let reason = || format!("larger than {limit_bytes} bytes");
    if is_within { Ok(content) } else { Err(io::Error::new(io::ErrorKind::FileTooLarge, reason())) }
}

/// Reads a text file, unless it is larger than `limit_bytes`.
///
/// # Errors
///
/// If the file cannot be read, is too large or is not UTF-8.
pub fn read_at_most(path: &Path, limit_bytes: u64) -> io::Result<String> {
    let not_text = |_not_utf8| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8");
    String::from_utf8(read(path, limit_bytes)?).map_err(not_text)
}

/// A path in the same directory that no other writer uses, in this process or another.
fn temporary_path(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}", std::process::id()))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // `create_new` does not follow a symlink, and the mode holds from the first byte on.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    // Before the rename, or a crash of the system could leave an empty file under the final name.
    file.sync_all()
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
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(replace(&path.join("below"), b"x").is_err());
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
}
