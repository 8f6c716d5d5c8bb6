//! What the process was started with, and files: where the values of `${…}` come from unless a program says
//! otherwise.
//!
//! **Invariant:** the environment is read once, when an [`Environment`] is made.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use toolrack_config::{Lookup, Source};
use toolrack_manager::read_at_most;

/// The longest file that a value may come from. Tokens and keys are short.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// The variables of the process and the files of the machine. It knows no secrets.
#[derive(Clone, Default)]
pub struct Environment {
    variables: HashMap<OsString, OsString>,
    /// Where relative paths begin.
    dir: PathBuf,
}

impl Environment {
    /// The environment of this process as it is now.
    pub fn of_process() -> Self {
        Self { variables: std::env::vars_os().collect(), dir: PathBuf::new() }
    }

    /// The same, with relative paths in `${file:…}` beginning at `dir`.
    #[must_use]
    pub fn beginning_at(self, dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), ..self }
    }

    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.variables.get(&OsString::from(name)) else { return Ok(None) };
        value.to_str().map(|it| Some(it.to_owned())).ok_or_else(|| "it is no text".to_owned())
    }
}

impl Lookup for Environment {
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String> {
        match source {
            Source::Env => self.variable(name),
            Source::File => read(&self.dir.join(name)),
            Source::Secret => Ok(None),
        }
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    match read_at_most(path, FILE_LIMIT_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

impl fmt::Debug for Environment {
    /// Values are left out, because many of them are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("dir", &self.dir)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    #[track_caller]
    fn check(known: &Environment, source: Source, name: &str, expected: Result<Option<&str>, ()>) {
        let found = known.look_up(source, name);
        assert_eq!(found.as_ref().map(Option::as_deref).map_err(|_reason| ()), expected, "{name}");
    }

    #[test]
    fn values_come_from_variables_and_files() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("token")).unwrap().write_all(b"t0ken\n").unwrap();
        File::create(dir.path().join("noise")).unwrap().write_all(&[0xff, 0xfe]).unwrap();
        let variables = HashMap::from([("TOKEN".into(), "s3cret".into())]);
        let known = Environment { variables, dir: PathBuf::new() }.beginning_at(dir.path());
        check(&known, Source::Env, "TOKEN", Ok(Some("s3cret")));
        check(&known, Source::Env, "OTHER", Ok(None));
        check(&known, Source::File, "token", Ok(Some("t0ken\n")));
        check(&known, Source::File, "other", Ok(None));
        check(&known, Source::File, "noise", Err(()));
        check(&known, Source::Secret, "TOKEN", Ok(None));
        assert!(!format!("{known:?}").contains("s3cret"));
    }
}
