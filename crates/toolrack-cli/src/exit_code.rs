//! Exit codes.

use std::process;

use toolrack_manager::ErrorKind;
use toolrack_service::ErrorCode;

/// Exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitCode {
    Success,
    Usage,
    Config,
    Auth,
    Unreachable,
    ToolFailed,
    Denied,
    Interrupted,
}

impl ExitCode {
    pub(crate) const ALL: [Self; 8] = [
        Self::Success,
        Self::Usage,
        Self::Config,
        Self::Auth,
        Self::Unreachable,
        Self::ToolFailed,
        Self::Denied,
        Self::Interrupted,
    ];

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Usage => 1,
            Self::Config => 2,
            Self::Auth => 3,
            Self::Unreachable => 4,
            Self::ToolFailed => 5,
            Self::Denied => 6,
            // As shells report a program ended by Ctrl-C.
            Self::Interrupted => 130,
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Usage => "usage error: invalid option, name or tool argument",
            Self::Config => "invalid or incomplete configuration",
            Self::Auth => "authentication required or failed",
            Self::Unreachable => "server cannot be started or reached, or timed out",
            Self::ToolFailed => "the tool returned an error, or the server rejected the request",
            Self::Denied => "denied by an allow or deny rule",
            Self::Interrupted => "interrupted by Ctrl-C",
        }
    }

    /// Exit code of a service error.
    pub(crate) fn from_error_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NotFound => Self::Usage,
            ErrorCode::ValidationError | ErrorCode::Conflict => Self::Config,
            ErrorCode::Unauthorized => Self::Auth,
            ErrorCode::Denied => Self::Denied,
            _ => Self::Unreachable,
        }
    }
}

impl From<ErrorKind> for ExitCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoSuchServer
            | ErrorKind::NoSuchTool
            | ErrorKind::NoSuchResource
            | ErrorKind::Ambiguous
            | ErrorKind::InvalidArguments => Self::Usage,
            ErrorKind::Disabled | ErrorKind::BadConfig | ErrorKind::MissingCredentials => {
                Self::Config
            }
            ErrorKind::NeedsLogin => Self::Auth,
            ErrorKind::Rejected
            | ErrorKind::InvalidResponse
            | ErrorKind::MissingCapability
            | ErrorKind::Unsupported => Self::ToolFailed,
            ErrorKind::Denied => Self::Denied,
            _ => Self::Unreachable,
        }
    }
}

impl From<ExitCode> for process::ExitCode {
    fn from(exit_code: ExitCode) -> Self {
        process::ExitCode::from(exit_code.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_stable() {
        let codes = ExitCode::ALL.map(ExitCode::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
    }

    #[test]
    fn service_errors_map_to_exit_codes() {
        for (code, expected) in [
            (ErrorCode::NotFound, ExitCode::Usage),
            (ErrorCode::ValidationError, ExitCode::Config),
            (ErrorCode::Unauthorized, ExitCode::Auth),
            (ErrorCode::NetworkError, ExitCode::Unreachable),
            (ErrorCode::Denied, ExitCode::Denied),
        ] {
            assert_eq!(ExitCode::from_error_code(code), expected, "{code}");
        }
    }
}
