//! What kind of failure keeps a server from being connected, for whoever reacts to it.

use toolrack_client::ConnectError;
use toolrack_transport::{AuthError, CloseReason, SpawnError, TransportError};

/// What kind of failure it is. Each asks for its own reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The config asks for something that cannot be had.
    BadConfig,
    /// A variable or header of the server refers to a value that is nowhere.
    MissingCredentials,
    /// There is no such package, no such version of it, or no such program.
    PackageNotFound,
    /// A program that installs or runs the server is not on this machine.
    MissingTool,
    /// Docker is there and does not answer.
    DockerNotRunning,
    /// The package could not be installed.
    InstallFailed,
    /// The package was not installed in time.
    InstallTimedOut,
    /// The process of the server could not be started.
    CannotStart,
    /// The server ended by itself.
    Exited,
    /// The server did not answer in time.
    HandshakeTimedOut,
    /// Nobody answers at the address of the server, or of the registry of its package.
    Unreachable,
    /// Somebody has to log in first.
    NeedsLogin,
    /// The server answers, and not as a server that can be used.
    Refused,
    /// The connection was lost.
    Lost,
    /// Somebody ended the attempt.
    Stopped,
    /// A fault of our own.
    Internal,
}

impl FailureKind {
    pub(super) fn of_connecting(error: &ConnectError) -> Self {
        match error {
            ConnectError::Transport(error) => Self::of_transport(error),
            ConnectError::NeedsAuth(rebuff) => Self::of_rebuff(rebuff),
            ConnectError::Exited { .. } => Self::Exited,
            ConnectError::TimedOut { .. } => Self::HandshakeTimedOut,
            _ => Self::Refused,
        }
    }

    pub(super) fn of_ending(ending: &CloseReason) -> Self {
        match ending {
            CloseReason::Exited(_) => Self::Exited,
            _ => Self::Lost,
        }
    }

    fn of_transport(error: &TransportError) -> Self {
        match error {
            TransportError::Spawn(fault) => Self::of_spawn(fault),
            TransportError::Unauthorized(rebuff) => Self::of_rebuff(rebuff),
            TransportError::Unreachable { .. }
            | TransportError::Io(_)
            | TransportError::Status { code: 500.., .. } => Self::Unreachable,
            TransportError::Timeout(_) | TransportError::Clogged { .. } => Self::HandshakeTimedOut,
            TransportError::ProcessExited(_) => Self::Exited,
            TransportError::Shutdown => Self::Stopped,
            TransportError::StdinNotAvailable
            | TransportError::StdoutNotAvailable
            | TransportError::SessionLost => Self::Lost,
            _ => Self::Refused,
        }
    }

    fn of_spawn(fault: &SpawnError) -> Self {
        match fault {
            SpawnError::NotFound { .. } | SpawnError::NoSuchFile(_) => Self::PackageNotFound,
            SpawnError::NotExecutable(_) | SpawnError::Refused { .. } | SpawnError::Guardian(_) => {
                Self::CannotStart
            }
            _ => Self::BadConfig,
        }
    }

    /// An authorization server that is out of order may be back by itself; a closed door stays closed.
    fn of_rebuff(rebuff: &AuthError) -> Self {
        match rebuff {
            AuthError::Unreachable { .. } => Self::Unreachable,
            _ => Self::NeedsLogin,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use toolrack_mcp::Method;
    use toolrack_transport::{TransportStats, ExitStatus, ProcessExit};

    use super::*;

    #[track_caller]
    fn check(error: ConnectError, expected: FailureKind) {
        assert_eq!(FailureKind::of_connecting(&error), expected);
    }

    #[test]
    fn every_way_to_fail_has_its_kind() {
        let over = |error| ConnectError::Transport(error);
        let exit = || ProcessExit { exit: ExitStatus::Code(1), stderr: [].into() };
        let (program, path) = ("npx".to_owned(), "/bin".to_owned());
        let missing = SpawnError::NotFound { program, path };
        check(over(TransportError::Spawn(missing)), FailureKind::PackageNotFound);
        let nothing = SpawnError::NoSuchFile("/x".into());
        check(over(TransportError::Spawn(nothing)), FailureKind::PackageNotFound);
        let folder = SpawnError::NotExecutable("/".into());
        check(over(TransportError::Spawn(folder)), FailureKind::CannotStart);
        let astray = SpawnError::BadDirectory("/x".into());
        check(over(TransportError::Spawn(astray)), FailureKind::BadConfig);
        let guardian = SpawnError::Guardian(io::ErrorKind::TimedOut.into());
        check(over(TransportError::Spawn(guardian)), FailureKind::CannotStart);
        check(over(TransportError::ProcessExited(exit())), FailureKind::Exited);
        check(ConnectError::Exited { exit: exit(), sample: None }, FailureKind::Exited);
        let text = String::new;
        check(over(TransportError::Status { code: 503, text: text() }), FailureKind::Unreachable);
        check(over(TransportError::Status { code: 404, text: text() }), FailureKind::Refused);
        let late = ConnectError::TimedOut {
            method: Method::Initialize,
            waited: Duration::from_secs(1),
            still_installing: None,
            diagnosis: Box::new(TransportStats::default()),
        };
        check(late, FailureKind::HandshakeTimedOut);
        let login = || AuthError::LoginNeeded { reason: text() };
        check(ConnectError::NeedsAuth(login()), FailureKind::NeedsLogin);
        check(over(TransportError::Unauthorized(login())), FailureKind::NeedsLogin);
        let out_of_order = AuthError::Unreachable { reason: text() };
        check(ConnectError::NeedsAuth(out_of_order), FailureKind::Unreachable);
        assert_eq!(FailureKind::of_ending(&CloseReason::Exited(exit())), FailureKind::Exited);
        assert_eq!(FailureKind::of_ending(&CloseReason::OutputClosed), FailureKind::Lost);
    }
}
