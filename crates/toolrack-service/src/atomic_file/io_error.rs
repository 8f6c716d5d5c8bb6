//! What is told when a file cannot be read or saved, and what to do about it.

use std::io;
use std::path::Path;

use crate::error::{ErrorCode, ServiceError, ServiceFault};

/// The error of something that could not be done with a file: `read`, `saved`.
pub(crate) fn trouble(done: &str, path: &Path, error: io::Error) -> ServiceError {
    let (code, reason, hint) = verdict(&error);
    let reason = reason.map_or_else(|| error.to_string(), str::to_owned);
    let message = format!("`{}` cannot be {done}: {reason}", path.display());
    let fault = ServiceFault::new(code, message);
    match hint {
        Some(hint) => fault.hint(hint).into(),
        None => fault.into(),
    }
}

type Verdict = (ErrorCode, Option<&'static str>, Option<&'static str>);

fn verdict(error: &io::Error) -> Verdict {
    use io::ErrorKind as Kind;
    let unavailable = |reason, hint| (ErrorCode::ServiceUnavailable, Some(reason), Some(hint));
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP) {
        let hint = "remove the link, or let it lead to a file";
        return (ErrorCode::ValidationError, Some("its links lead nowhere good"), Some(hint));
    }
    match error.kind() {
        Kind::TimedOut => unavailable(
            "another program is changing it and does not come to an end",
            "see whether a `toolrack` hangs, and end it",
        ),
        Kind::StorageFull | Kind::QuotaExceeded => {
            unavailable("the disk is full", "make room and try again; nothing was changed")
        }
        Kind::PermissionDenied => unavailable(
            "permission denied",
            "check the owner and the mode of the file and its folder",
        ),
        Kind::ReadOnlyFilesystem => unavailable(
            "the disk cannot be written",
            "mount it for writing, or set `TOOLRACK_HOME` to a folder elsewhere",
        ),
        Kind::FileTooLarge => {
            (ErrorCode::ValidationError, Some("it is too large"), Some("look at what it is"))
        }
        Kind::IsADirectory => {
            (ErrorCode::ValidationError, Some("it is a folder"), Some("move it away"))
        }
        Kind::InvalidInput => {
            (ErrorCode::ValidationError, Some("it is no plain file"), Some("move it away"))
        }
        _ => (ErrorCode::ServiceUnavailable, None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errno: rustix::io::Errno, expected: &str) {
        let error = trouble("saved", Path::new("/a/b.toml"), errno.into());
        let hint = error.hint().unwrap_or_default();
        assert_eq!(format!("{} {error} | {hint}", error.code()), expected);
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        use rustix::io::Errno;
        check(
            Errno::NOSPC,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: the disk is full | make room and try again; nothing was changed",
        );
        check(
            Errno::ACCESS,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: permission denied | check the owner and the mode of the file and its folder",
        );
        check(
            Errno::ROFS,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: the disk cannot be written | mount it for writing, or set `TOOLRACK_HOME` to a folder elsewhere",
        );
        check(
            Errno::LOOP,
            "VALIDATION_ERROR `/a/b.toml` cannot be saved: its links lead nowhere good | remove the link, or let it lead to a file",
        );
        check(
            Errno::IO,
            "SERVICE_UNAVAILABLE `/a/b.toml` cannot be saved: Input/output error (os error 5) | ",
        );
    }
}
