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
        _ => (ErrorCode::ServiceUnavailable, None, None),
    }
}
