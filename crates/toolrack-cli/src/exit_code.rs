//! Exit codes.

use std::process;

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
            Self::Success => "it worked",
            Self::Usage => "something was typed wrongly: an option, a name, an argument of a tool",
            Self::Config => "the config cannot be used, or lacks something",
            Self::Auth => "the server wants a login or a token",
            Self::Unreachable => {
                "the server cannot be started or reached, or did not answer in time"
            }
            Self::ToolFailed => "the tool ran and failed, or the server refused the request",
            Self::Denied => "a rule of the config denies it",
            Self::Interrupted => "Ctrl-C",
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

impl From<ExitCode> for process::ExitCode {
    fn from(exit_code: ExitCode) -> Self {
        process::ExitCode::from(exit_code.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_promised_ones_and_differ() {
        let codes = ExitCode::ALL.map(ExitCode::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
    }

    #[test]
    fn faults_of_the_service_have_their_exit_codes() {
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
