//! Stamp file beside an install, with a hash of its lock files.
//!
//! **Invariant:** the stamp is written last and removed first, so an interrupted install never looks
//! finished.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    mark: String,
}

impl Stamp {
    /// The stamp for the present content of these files and for `extra`.
    pub(super) fn for_files(dir: &Path, files: &[&str], extra: &str, path: &str) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        extra.hash(&mut hasher);
        for file in files {
            let file = dir.join(file);
            fs::read(&file).with_context(|| file.display().to_string())?.hash(&mut hasher);
        }
        Ok(Self { path: dir.join(path), mark: format!("{:016x}", hasher.finish()) })
    }

    /// Whether the same content was installed and the programs still exist.
    pub(super) fn is_current(&self, dir: &Path, programs: &[&str]) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|mark| mark == self.mark)
            && programs.iter().all(|program| dir.join(program).exists())
    }

    pub(super) fn write(&self) -> Result<()> {
        crate::source_tree::write(&self.path, &self.mark)
    }

    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| self.path.display().to_string())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn put(&self, file: &str, text: &str) {
            crate::source_tree::write(&self.0.join(file), text).unwrap();
        }

        fn stamp(&self, extra: &str) -> Stamp {
            Stamp::for_files(&self.0, &["lock"], extra, "stamp").unwrap()
        }

        fn is_current(&self, extra: &str) -> bool {
            self.stamp(extra).is_current(&self.0, &["program"])
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn install_is_repeated_only_when_something_changed() {
        let folder = Folder::new("stamp");
        folder.put("lock", "one");
        folder.put("program", "");
        assert!(!folder.is_current("3.11"));
        folder.stamp("3.11").write().unwrap();
        assert!(folder.is_current("3.11"));
        assert!(!folder.is_current("3.12"));
        folder.put("lock", "two");
        assert!(!folder.is_current("3.11"));
        folder.put("lock", "one");
        assert!(folder.is_current("3.11"));
        fs::remove_file(folder.0.join("program")).unwrap();
        assert!(!folder.is_current("3.11"));
    }

    #[test]
    fn removing_a_stamp_that_is_not_there_is_no_error() {
        let folder = Folder::new("no-stamp");
        folder.put("lock", "one");
        folder.stamp("").remove().unwrap();
        folder.stamp("").write().unwrap();
        folder.stamp("").remove().unwrap();
        assert!(!folder.is_current(""));
    }
}
