//! File and directory paths: `TOOLRACK_HOME`, XDG directories, and everything below them.
//!
//! **Invariant:** no access to the disk or the environment. The caller passes the environment in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{ErrorCode, ErrorDetail, ServiceError};

/// Environment variable that puts everything into one directory.
const HOME: &str = "TOOLRACK_HOME";
const FILE: &str = "toolrack.toml";

/// The paths of one installation: its config file and its data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config_file: PathBuf,
    dir: PathBuf,
}

impl Home {
    /// With this config file and data directory.
    pub fn new(config_file: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self { config_file: config_file.into(), dir: dir.into() }
    }

    /// Everything in one directory.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self { config_file: dir.join(FILE), dir }
    }

    /// From the environment: `TOOLRACK_HOME`, or the XDG directories, or their defaults under `HOME`.
    ///
    /// # Errors
    ///
    /// `TOOLRACK_HOME` is not an absolute path, or none of the variables is set.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ServiceError> {
        let given =
            |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(dir) = given(HOME) {
            // A relative path would mean another home in every working directory, untrusted projects included.
            if dir.is_absolute() {
                return Ok(Self::in_dir(dir));
            }
            let message = "`TOOLRACK_HOME` is not an absolute path";
            let detail = ErrorDetail::new(ErrorCode::ValidationError, message).with_field(HOME);
            return Err(detail.with_hint("use an absolute path").into());
        }
        let home = given("HOME").filter(|path| path.is_absolute());
        // The XDG specification: ignore paths that are not absolute.
        let base_dir = |name: &str, under_home: &str| {
            let path = given(name).filter(|path| path.is_absolute());
            path.or_else(|| home.as_ref().map(|home| home.join(under_home))).ok_or_else(|| {
                let message = "cannot determine the config directory";
                ErrorDetail::new(ErrorCode::ValidationError, message)
                    .with_hint("set `HOME` or `TOOLRACK_HOME`")
            })
        };
        let config = base_dir("XDG_CONFIG_HOME", ".config")?;
        let data = base_dir("XDG_DATA_HOME", ".local/share")?;
        Ok(Self::new(config.join("toolrack").join(FILE), data.join("toolrack")))
    }

    /// The config file.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Secrets, one file each.
    pub fn secrets_dir(&self) -> PathBuf {
        self.dir.join("secrets")
    }

    /// OAuth tokens, one file per server.
    pub fn tokens_dir(&self) -> PathBuf {
        self.dir.join("tokens")
    }

    /// Cached tool lists.
    pub fn catalog_dir(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// Server logs, one file each.
    pub fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Call history.
    pub fn history_file(&self) -> PathBuf {
        self.dir.join("history.db")
    }

    /// Sockets and lock files of running processes.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Locked by the daemon while it runs: one daemon per home.
    pub fn lock_file(&self) -> PathBuf {
        self.run_dir().join("daemon.lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(environment: &[(&str, &str)], expected: Option<(&str, &str)>) {
        let variable = |name: &str| {
            let found = environment.iter().find(|pair| pair.0 == name);
            found.map(|pair| OsString::from(pair.1))
        };
        let expected = expected.map(|(file, data)| Home::new(file, data));
        assert_eq!(Home::from_env(variable).ok(), expected, "{environment:?}");
    }

    #[test]
    fn paths_follow_the_environment() {
        let usual = ("/u/.config/toolrack/toolrack.toml", "/u/.local/share/toolrack");
        check(&[("HOME", "/u")], Some(usual));
        check(&[("HOME", "/u"), ("XDG_CONFIG_HOME", ""), ("XDG_DATA_HOME", "x")], Some(usual));
        check(
            &[("HOME", "/u"), ("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d")],
            Some(("/c/toolrack/toolrack.toml", "/d/toolrack")),
        );
        check(
            &[("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d")],
            Some(("/c/toolrack/toolrack.toml", "/d/toolrack")),
        );
        check(&[("HOME", "/u"), ("TOOLRACK_HOME", "/t")], Some(("/t/toolrack.toml", "/t")));
        check(&[("HOME", "/u"), ("TOOLRACK_HOME", "")], Some(usual));
        check(&[("HOME", "/u"), ("TOOLRACK_HOME", "./here")], None);
        check(&[("HOME", "u")], None);
        check(&[], None);
    }
}
