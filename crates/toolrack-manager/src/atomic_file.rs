//! The one place that writes files: whole or not at all, and for their owner alone.
//!
//! **Invariant:** nobody else can read what is written here, whatever the umask.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file. Whoever reads it sees the old text or the new one, never a part.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    close_to_others(dir);
    let draft = draft_of(path);
    let outcome = write(&draft, text).and_then(|()| fs::rename(&draft, path));
    if outcome.is_err() && fs::remove_file(&draft).is_err() {
        tracing::debug!(draft = %draft.display(), "a draft is left behind");
    }
    outcome
}

/// Takes the rights of everybody else away from a file or folder that was made with them. One that many share, such as
/// `/tmp`, is not ours to close, and neither is one of somebody else.
pub(crate) fn close_to_others(path: &Path) {
    let Ok(about) = fs::symlink_metadata(path) else { return };
    let mode = about.permissions().mode();
    let (is_open, is_shared) = (mode & 0o077 != 0, mode & 0o1000 != 0);
    if about.is_symlink() || is_shared || !is_open {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & 0o700)) {
        tracing::warn!(path = %path.display(), %error, "others may read it, and that cannot be changed");
    }
}

/// Reads a file, unless it is larger than `limit_bytes`.
pub(crate) fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(limit_bytes.saturating_add(1)).read_to_end(&mut text)?;
    let is_within = u64::try_from(text.len()).is_ok_and(|length| length <= limit_bytes);
    let reason = || format!("longer than {limit_bytes} bytes");
    if is_within { Ok(text) } else { Err(io::Error::new(io::ErrorKind::FileTooLarge, reason())) }
}

/// The text of a file, unless it is longer than `limit_bytes`.
///
/// # Errors
///
/// When it cannot be read, is too long or is not text.
pub fn read_at_most(path: &Path, limit_bytes: u64) -> io::Result<String> {
    let not_text = |_not_utf8| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8");
    String::from_utf8(read(path, limit_bytes)?).map_err(not_text)
}

/// A name beside the file that no other writer uses, in this process or another.
fn draft_of(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}", std::process::id()))
}

fn write(draft: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_read_within_a_limit() {
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
    fn what_is_open_to_others_is_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, path) = (dir.path().join("data/catalog"), dir.path().join("data/catalog/file"));
        replace(&path, b"one").unwrap();
        assert_eq!(
            [mode(&dir.path().join("data")), mode(&inner), mode(&path)],
            [0o700, 0o700, 0o600]
        );
        for (path, loose) in [(&inner, 0o755), (&path, 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(loose)).unwrap();
        }
        close_to_others(&path);
        assert_eq!(mode(&path), 0o600);
        replace(&path, b"two").unwrap();
        assert_eq!([mode(&inner), mode(&path)], [0o700, 0o600]);
        // A folder that everybody shares stays as it is.
        fs::set_permissions(&inner, Permissions::from_mode(0o1777)).unwrap();
        close_to_others(&inner);
        assert_eq!(mode(&inner), 0o777);
    }
}
