//! Permissions of a home: a config file or data directory that other users can change is refused.

use std::path::{Path, PathBuf};

use toolrack_platform::{InsecurePath, PathUse, check_paths, make_private};

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::paths::Home;

/// Whether a home is used that other users can change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InsecureHome {
    /// It is refused, because such a user could run programs as this one.
    #[default]
    Refuse,
    /// It is used; the caller has checked it with [`insecure_paths`], or trusts these users.
    Allow,
}

/// The paths of a home that other users can change: its config file, its data directory, the files and directories
/// with fixed names in there, and the directories above.
pub fn insecure_paths(home: &Home) -> Vec<InsecurePath> {
    let dirs: Vec<PathBuf> =
        [home.secrets_dir(), home.tokens_dir(), home.catalog_dir(), home.logs_dir()]
            .into_iter()
            .chain([home.run_dir(), home.packages_dir()])
            .collect();
    let files = [home.lock_file(), home.history_file(), home.log_file()];
    let mut paths = vec![(home.config_file(), PathUse::File), (home.dir(), PathUse::Directory)];
    paths.extend(dirs.iter().map(|dir| (dir.as_path(), PathUse::Directory)));
    paths.extend(files.iter().map(|file| (file.as_path(), PathUse::File)));
    check_paths(&paths)
}

/// The paths of one config file that other users can change.
pub fn insecure_config_paths(file: &Path) -> Vec<InsecurePath> {
    check_paths(&[(file, PathUse::File)])
}

/// Checks a home before it is used, and closes its data directory to other users.
///
/// # Errors
///
/// Every path of the home that other users can change, unless `insecure` allows it.
pub fn secure_home(home: &Home, insecure: InsecureHome) -> Result<(), ServiceError> {
    if insecure == InsecureHome::Refuse {
        ensure_secure(home)?;
    }
    // A directory that also holds the config file may be shared on purpose; secrets are private by themselves.
    if !home.config_file().starts_with(home.dir()) {
        make_private(home.dir());
    }
    Ok(())
}

/// Fails if another user could change the home. A group that can is logged only.
fn ensure_secure(home: &Home) -> Result<(), ServiceError> {
    let (refused, shared): (Vec<_>, Vec<_>) =
        insecure_paths(home).into_iter().partition(|insecure| insecure.exposure.is_refused());
    for insecure in shared {
        tracing::warn!("{insecure}");
    }
    ServiceError::if_any(refused.iter().map(insecure_path_error).collect())
}

fn insecure_path_error(insecure: &InsecurePath) -> ErrorDetail {
    let hint = format!("run `{}`", insecure.repair_command());
    ErrorDetail::new(ErrorCode::Denied, insecure.to_string()).with_hint(hint)
}
