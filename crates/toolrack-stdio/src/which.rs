//! Finding the program before it is started, so that a missing one can be named.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toolrack_transport::SpawnFault;

/// Where a shell would look without a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The file that `command` stands for. A name is looked up in `path`, or in our own if there is none, and
/// never in the working directory.
pub fn find_program(command: &str, path: Option<&OsStr>) -> Result<PathBuf, SpawnFault> {
    let ours = std::env::var_os("PATH");
    find(command, path.or(ours.as_deref()), None)
}

/// The file that `command` stands for. A name is looked up in `path`, never in the working
/// directory; a path is taken from `cwd`.
pub(crate) fn find(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<PathBuf, SpawnFault> {
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return check(file);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut blocked = None;
    for dir in std::env::split_paths(path).filter(|dir| dir.is_absolute()) {
        match check(dir.join(command)) {
            Ok(file) => return Ok(file),
            Err(SpawnFault::NotExecutable(file)) if !file.is_dir() => blocked = Some(file),
            Err(_missing) => {}
        }
    }
    Err(match blocked {
        Some(file) => SpawnFault::NotExecutable(file),
        None => SpawnFault::NotFound {
            program: command.to_owned(),
            path: path.to_string_lossy().into_owned(),
        },
    })
}

fn check(file: PathBuf) -> Result<PathBuf, SpawnFault> {
    match fs::metadata(&file) {
        Err(_missing) => Err(SpawnFault::NoSuchFile(file)),
        Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => Ok(file),
        Ok(_) => Err(SpawnFault::NotExecutable(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_named() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tool");
        let plain = dir.path().join("data");
        for file in [&program, &plain] {
            fs::copy("/bin/true", file).unwrap();
        }
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        let path = std::env::join_paths(["/nowhere".as_ref(), dir.path()]).unwrap();
        let look = |command: &str| match find(command, Some(&path), Some(dir.path())) {
            Ok(file) => file.display().to_string(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(look("tool"), program.display().to_string());
        assert_eq!(look("./tool"), dir.path().join("./tool").display().to_string());
        assert_eq!(look("data"), format!("`{}` is not an executable program", plain.display()));
        assert_eq!(
            look("missing"),
            format!("program `missing` was not found in PATH ({})", path.display())
        );
        assert_eq!(look("/nowhere/x"), "program `/nowhere/x` does not exist");
        assert_eq!(
            look("./"),
            format!("`{}` is not an executable program", dir.path().join("./").display())
        );
    }
}
