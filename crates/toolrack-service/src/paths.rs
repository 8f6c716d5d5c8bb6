//! Where things live: the config file, and the folder with everything else that is remembered.
//!
//! **Invariant:** nothing here touches the disk or the environment. Whoever may read the environment
//! hands it in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{ErrorCode, ServiceError, ServiceFault};

/// Moves everything into one folder.
const HOME: &str = "TOOLRACK_HOME";
const FILE: &str = "toolrack.toml";

/// Where things live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config_file: PathBuf,
    dir: PathBuf,
}

impl Home {
    /// The config file here, everything else there.
    pub fn new(config_file: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self { config_file: config_file.into(), dir: dir.into() }
    }

    /// Everything in one folder.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self { config_file: dir.join(FILE), dir }
    }

    /// Where the environment says: `TOOLRACK_HOME`, or the folders that XDG names, or those under `HOME`.
    ///
    /// # Errors
    ///
    /// When `TOOLRACK_HOME` is no absolute path, or nothing says where to go.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ServiceError> {
        let given = |name: &str| variable(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        if let Some(dir) = given(HOME) {
            // A relative one would mean another home in every folder, a stranger's project among them.
            return if dir.is_absolute() { Ok(Self::at(dir)) } else { Err(relative()) };
        }
        let home = given("HOME").filter(|it| it.is_absolute());
        // XDG: a path that is not absolute is to be ignored.
        let folder = |name: &str, under_home: &str| {
            let named = given(name).filter(|it| it.is_absolute());
            named.or_else(|| home.as_ref().map(|it| it.join(under_home))).ok_or_else(nowhere)
        };
        let config = folder("XDG_CONFIG_HOME", ".config")?;
        let data = folder("XDG_DATA_HOME", ".local/share")?;
        Ok(Self::new(config.join("toolrack").join(FILE), data.join("toolrack")))
    }

    /// The servers and settings, for people to edit.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// The folder of everything else.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Secrets, a file for each.
    pub fn secrets_dir(&self) -> PathBuf {
        self.dir.join("secrets")
    }

    /// Logins, a file for each server.
    pub fn tokens_dir(&self) -> PathBuf {
        self.dir.join("tokens")
    }

    /// What tools servers had when they were last seen.
    pub fn catalog_dir(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// Packages that have been installed.
    pub fn packages_dir(&self) -> PathBuf {
        self.dir.join("packages")
    }

    /// What servers said when they were run.
    pub fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Which calls there were.
    pub fn history_file(&self) -> PathBuf {
        self.dir.join("history.db")
    }

    /// Sockets and other things of those that run now.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Locked by the one daemon of this home as long as it runs.
    pub fn lock_file(&self) -> PathBuf {
        self.run_dir().join("daemon.lock")
    }
}

fn relative() -> ServiceError {
    ServiceFault::new(ErrorCode::ValidationError, "`TOOLRACK_HOME` is not an absolute path")
        .at(HOME)
        .hint("give the whole path, beginning with `/`")
        .into()
}

fn nowhere() -> ServiceError {
    ServiceFault::new(ErrorCode::ValidationError, "it is unknown where configs are kept")
        .hint("set `HOME`, or `TOOLRACK_HOME` to a folder for everything")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(environment: &[(&str, &str)], expected: Option<(&str, &str)>) {
        let variable = |name: &str| {
            let found = environment.iter().find(|it| it.0 == name);
            found.map(|it| OsString::from(it.1))
        };
        let expected = expected.map(|(file, data)| Home::new(file, data));
        assert_eq!(Home::of(variable).ok(), expected, "{environment:?}");
    }

    #[test]
    fn the_environment_says_where_things_live() {
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
