//! File and directory paths: `TOOLRACK_HOME`, the directories of the system, and everything below them.
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

    /// The home of the `toolrack` program, from the environment: `TOOLRACK_HOME`, or the directories of
    /// [`for_application`](Self::for_application).
    ///
    /// # Errors
    ///
    /// `TOOLRACK_HOME` is not an absolute path, or none of the variables is set.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ServiceError> {
        let Some(dir) = variable(HOME).filter(|value| !value.is_empty()).map(PathBuf::from) else {
            return Self::for_application("toolrack", variable);
        };
        // A relative path would mean another home in every working directory, untrusted projects included.
        if dir.is_absolute() {
            return Ok(Self::in_dir(dir));
        }
        let message = "`TOOLRACK_HOME` is not an absolute path";
        let detail = ErrorDetail::new(ErrorCode::ValidationError, message).with_field(HOME);
        Err(detail.with_hint("use an absolute path").into())
    }

    /// The home of an application with folders of its own, named `application`, in the XDG directories or their
    /// defaults under `HOME`. The default of the data directory is `~/Library/Application Support` on macOS and
    /// `~/.local/share` elsewhere; that of the config file is `~/.config`.
    ///
    /// # Errors
    ///
    /// The name is not that of a folder, or none of the variables is set.
    pub fn for_application(
        application: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ServiceError> {
        Self::on_system(std::env::consts::OS, application, variable)
    }

    fn on_system(
        system: &str,
        application: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ServiceError> {
        let is_folder = !application.trim().is_empty()
            && !matches!(application, "." | "..")
            && !application.contains(|char: char| char.is_control() || matches!(char, '/' | '\\'));
        if !is_folder {
            let message = "is not the name of a folder, such as `PersonalAgent`";
            let detail = ErrorDetail::new(ErrorCode::ValidationError, message);
            return Err(detail.with_field("application").into());
        }
        // The XDG specification: ignore paths that are not absolute.
        let given =
            |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base_dir = |name: &str, under_home: &str| {
            let path = given(name).or_else(|| given("HOME").map(|home| home.join(under_home)));
            path.ok_or_else(|| {
                let message = "cannot determine the config directory";
                ErrorDetail::new(ErrorCode::ValidationError, message)
                    .with_hint("set `HOME` or `TOOLRACK_HOME`")
            })
        };
        let data_dir =
            if system == "macos" { "Library/Application Support" } else { ".local/share" };
        let config = base_dir("XDG_CONFIG_HOME", ".config")?;
        let data = base_dir("XDG_DATA_HOME", data_dir)?;
        Ok(Self::new(config.join(application).join(FILE), data.join(application)))
    }

    /// The config file.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Secrets: API keys (`mcp_{id}.key`) and OAuth tokens (`mcp_{id}.oauth`) of servers, and secrets with a name of
    /// their own (`mcp_{name}.key`).
    pub fn secrets_dir(&self) -> PathBuf {
        self.dir.join("secrets")
    }

    /// OAuth tokens of servers that are not configured, and those of earlier versions.
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

    /// Installed packages.
    pub fn packages_dir(&self) -> PathBuf {
        self.dir.join("packages")
    }

    /// Log of the daemon.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("daemon.log")
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

    #[track_caller]
    fn check_system(system: &str, variables: &[(&str, &str)], data_dir: &str) {
        let variable = |name: &str| {
            let found = variables.iter().find(|pair| pair.0 == name);
            found.map(|pair| OsString::from(pair.1))
        };
        let home = Home::on_system(system, "PersonalAgent", variable).unwrap();
        assert_eq!(home.dir(), Path::new(data_dir), "{system}");
        assert_eq!(home.secrets_dir(), Path::new(data_dir).join("secrets"));
    }

    /// Spec 004: `~/Library/Application Support/PersonalAgent/secrets/` on macOS.
    #[test]
    fn application_has_a_data_dir_of_its_own() {
        let home = ("HOME", "/u");
        check_system("macos", &[home], "/u/Library/Application Support/PersonalAgent");
        check_system("linux", &[home], "/u/.local/share/PersonalAgent");
        check_system("freebsd", &[home], "/u/.local/share/PersonalAgent");
        for system in ["macos", "linux"] {
            let variables = [home, ("XDG_DATA_HOME", "/d"), ("TOOLRACK_HOME", "/t")];
            check_system(system, &variables, "/d/PersonalAgent");
        }
        for name in ["", " ", ".", "..", "a/b", "/a", "a\\b", "a\0"] {
            let home = Home::for_application(name, |_| Some("/u".into()));
            assert_eq!(home.unwrap_err().details()[0].field.as_deref(), Some("application"));
        }
    }

    #[test]
    fn paths_follow_the_environment() {
        let data = if cfg!(target_os = "macos") {
            "/u/Library/Application Support/toolrack"
        } else {
            "/u/.local/share/toolrack"
        };
        let usual = ("/u/.config/toolrack/toolrack.toml", data);
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
