//! The file behind a path: links are followed, so that a link stays one and everybody locks the same file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::atomic_file::trouble;
use crate::error::{ErrorCode, ServiceError};

/// As many links as the kernel follows.
const N_LINKS: usize = 40;

/// A file by its folder and its name in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) dir: PathBuf,
    pub(super) name: OsString,
    /// The file that is locked, beside it. It stays, because a lock on a file that is gone locks nobody out.
    pub(super) lock: OsString,
    /// The file that is written before it takes the place.
    pub(super) beside: OsString,
}

impl Target {
    pub(super) fn of(path: &Path) -> Result<Self, ServiceError> {
        let mut path = path.to_owned();
        for _link in 0..N_LINKS {
            match fs::read_link(&path) {
                Ok(to) => path = path.parent().map_or_else(|| to.clone(), |dir| dir.join(&to)),
                // No link, or nothing at all: both are what we look for.
                Err(_no_link) => return Self::plain(&path),
            }
        }
        Err(trouble("read", &path, rustix::io::Errno::LOOP.into()))
    }

    fn plain(path: &Path) -> Result<Self, ServiceError> {
        let Some(name) = path.file_name() else {
            let message = format!("`{}` names no file", path.display());
            return Err(ServiceError::new(ErrorCode::ValidationError, message));
        };
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let hidden = |ending: &str| {
            [OsStr::new("."), name, OsStr::new(ending)].into_iter().collect::<OsString>()
        };
        Ok(Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            lock: hidden(".lock"),
            beside: hidden(".tmp"),
        })
    }
}
