//! A program that should be on this machine, and what may have been meant if it is not.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use toolrack_client::ConnectError;
use toolrack_manager::{Failure, FailureKind};
use toolrack_stdio::find_program;
use toolrack_transport::{SpawnFault, TransportError};

/// The most suggestions that are worth reading.
const MOST: usize = 3;

/// Whether the program can be started, and what there is instead if not. A path is taken from `cwd`.
pub(super) fn check(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<(), Failure> {
    let is_path = command.contains('/');
    let file =
        cwd.filter(|_| is_path).map_or_else(|| PathBuf::from(command), |it| it.join(command));
    let Err(fault) = find_program(&file.to_string_lossy(), path) else { return Ok(()) };
    let kind = match fault {
        SpawnFault::NotFound { .. } | SpawnFault::NoSuchFile(_) => FailureKind::PackageNotFound,
        _ => FailureKind::CannotStart,
    };
    let failure = Failure::new(kind, fault.to_string());
    if let SpawnFault::NotExecutable(_) = &fault {
        let hint = ConnectError::Transport(TransportError::Spawn(fault)).hint();
        return Err(failure.hinting(hint.unwrap_or_default()));
    }
    let dirs = match (is_path, &fault) {
        (true, _) => file.parent().map(Path::to_owned).into_iter().collect(),
        (false, SpawnFault::NotFound { path, .. }) => std::env::split_paths(path).collect(),
        (false, _) => Vec::new(),
    };
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or(command);
    let near = near(name, dirs.iter().flat_map(|dir| names(dir)));
    Err(match near.as_slice() {
        [] => failure.hinting("install it, or give its full path"),
        near => failure.hinting(format!("there is `{}`", near.join("`, `"))),
    })
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().into_string().ok()).collect()
}

/// The names that differ in a letter or two, the nearest first.
fn near(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let most = (name.chars().count() / 4).clamp(1, 3);
    let mut near: Vec<(usize, String)> = names
        .map(|it| (strsim::damerau_levenshtein(name, &it), it))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_near(name: &str, expected: &[&str]) {
        let names = ["demo-server", "demo-client", "sh", "bash", "demo-sever", "demo-server"];
        assert_eq!(near(name, names.iter().map(|it| (*it).to_owned())), expected);
    }

    #[test]
    fn near_names_are_the_nearest_first() {
        check_near("demo-servr", &["demo-server", "demo-sever"]);
        check_near("bsh", &["bash", "sh"]);
        check_near("entirely-else", &[]);
    }

    #[track_caller]
    fn check_fault(command: &str, dir: &Path, expected: (FailureKind, &str)) {
        let failure = check(command, Some(dir.as_os_str()), Some(dir)).unwrap_err();
        assert_eq!((failure.kind(), failure.hint().unwrap()), expected, "{failure}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        fs::copy("/bin/true", dir.path().join("tool")).unwrap();
        assert_eq!(check("tool", Some(dir.path().as_os_str()), None), Ok(()));
        assert_eq!(check("./tool", None, Some(dir.path())), Ok(()));
        let near = (FailureKind::PackageNotFound, "there is `tool`");
        check_fault("tol", dir.path(), near);
        check_fault("./tooll", dir.path(), near);
        let nothing = (FailureKind::PackageNotFound, "install it, or give its full path");
        check_fault("something-else", dir.path(), nothing);
        check_fault("/nowhere/at/all", dir.path(), nothing);
        let plain = dir.path().join("data");
        File::create(&plain).unwrap();
        let hint = format!("make it executable with `chmod +x {}`", plain.display());
        check_fault("data", dir.path(), (FailureKind::CannotStart, &hint));
    }

    use std::fs::File;
}
