//! Environment: the process's variables and files as values of `${…}` references.
//!
//! **Invariant:** a variable is read when a server connects, so a changed one takes effect at the next connection.

use std::io;
use std::path::PathBuf;

use toolrack_config::{Lookup, VariableSource};
use toolrack_platform::read_at_most;

/// Maximum size of a file that holds a value. Tokens and keys are short.
const VALUE_LIMIT_BYTES: u64 = 1 << 20;

/// Lookup of process variables and files. It has no secrets.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Base directory of relative paths.
    dir: PathBuf,
}

impl Environment {
    /// The environment of this process, as it is at each lookup.
    pub fn from_process() -> Self {
        Self::default()
    }

    /// Sets the base directory of relative paths in `${file:…}`.
    #[must_use]
    pub fn with_base_dir(self, dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }
}

impl Lookup for Environment {
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String> {
        match source {
            // Invalid text is an error and not "unset": a default would hide the broken value.
            VariableSource::Env => std::env::var_os(name)
                .map(|value| value.into_string().map_err(|_raw| "not valid UTF-8".to_owned()))
                .transpose(),
            VariableSource::File => match read_at_most(&self.dir.join(name), VALUE_LIMIT_BYTES) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.to_string()),
            },
            VariableSource::Secret => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    #[track_caller]
    fn check(
        environment: &Environment,
        source: VariableSource,
        name: &str,
        expected: Result<Option<&str>, ()>,
    ) {
        let found = environment.look_up(source, name);
        assert_eq!(found.as_ref().map(Option::as_deref).map_err(|_reason| ()), expected, "{name}");
    }

    #[test]
    fn values_come_from_variables_and_files() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("token")).unwrap().write_all(b"t0ken\n").unwrap();
        File::create(dir.path().join("noise")).unwrap().write_all(&[0xff, 0xfe]).unwrap();
        let environment = Environment::from_process().with_base_dir(dir.path());
        let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
        check(&environment, VariableSource::Env, "PATH", Ok(Some(&path)));
        check(&environment, VariableSource::Env, "TOOLRACK_NO_SUCH_VARIABLE", Ok(None));
        check(&environment, VariableSource::Env, "NAME=VALUE", Ok(None));
        check(&environment, VariableSource::File, "token", Ok(Some("t0ken\n")));
        check(&environment, VariableSource::File, "other", Ok(None));
        check(&environment, VariableSource::File, "noise", Err(()));
        check(&environment, VariableSource::Secret, "PATH", Ok(None));
    }
}
