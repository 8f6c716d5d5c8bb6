//! What can go wrong on a line, and how far the message had come by then.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::JsonRpcError;

use crate::close_reason::ServerExit;
use crate::credentials::AuthError;

/// Why a line could not do what was asked. The names are those of the founding documents; there is no
/// `IdMismatch`, because answers are matched by a table and cannot be mismatched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The server's process could not be started.
    #[error(transparent)]
    Spawn(SpawnFault),
    /// The server does not take input any more.
    #[error("the server closed its input")]
    StdinNotAvailable,
    /// The server cannot answer any more, although it may still run.
    #[error("the server closed its output")]
    StdoutNotAvailable,
    /// The connection broke.
    #[error("input or output failed")]
    Io(#[from] io::Error),
    /// The message could not be written as JSON.
    #[error("the message cannot be written as JSON")]
    Serialize(#[source] serde_json::Error),
    /// The answer is not what an answer has to be. The text says what is wrong with it.
    #[error("malformed answer: {0}")]
    Parse(String),
    /// The server refused.
    #[error("{0}")]
    JsonRpc(#[from] JsonRpcError),
    /// No answer within this many milliseconds.
    #[error("request timed out after {0}ms")]
    Timeout(u64),
    /// The answer was longer than the line takes and has been thrown away.
    #[error("the answer is larger than the limit of {limit_bytes} bytes")]
    Oversize {
        /// What the line takes at most.
        limit_bytes: usize,
    },
    /// The server does not read, and the buffer for it is full.
    #[error("the server does not read its input, and {buffered_bytes} bytes wait for it")]
    Clogged {
        /// What is waiting.
        buffered_bytes: usize,
    },
    /// Nobody answers at the server's address.
    #[error("no connection to {address}")]
    Unreachable {
        /// Where, without anything secret.
        address: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// An HTTP server answered with something else than an answer.
    #[error("the server answered with HTTP status {code}{}", shown(.text))]
    Status {
        /// The status code.
        code: u16,
        /// The beginning of what it said, cleaned for people to see.
        text: String,
    },
    /// The server does not let us in.
    #[error("{0}")]
    Unauthorized(#[from] AuthError),
    /// The server has forgotten the session, and no new one could be begun.
    #[error("the server has ended the session")]
    SessionLost,
    /// The server's process is gone.
    #[error("{0}")]
    ProcessExited(ServerExit),
    /// We closed the line.
    #[error("transport is shut down")]
    Shutdown,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnFault {
    /// No such program in any directory of `PATH`.
    #[error("program `{program}` was not found in PATH ({path})")]
    NotFound {
        /// What was looked for.
        program: String,
        /// Where it was looked for.
        path: String,
    },
    /// A path was given, and nothing is there.
    #[error("program `{}` does not exist", .0.display())]
    NoSuchFile(PathBuf),
    /// Something is there, and it is not a program we may run.
    #[error("`{}` is not an executable program", .0.display())]
    NotExecutable(PathBuf),
    /// The working directory is not there, or not a directory.
    #[error("working directory `{}` does not exist or is not a directory", .0.display())]
    BadDirectory(PathBuf),
    /// A text that cannot be passed to a program, because it holds a zero byte.
    #[error("{field} holds a zero byte, which no program can be given")]
    ZeroByte {
        /// Which part of the definition.
        field: String,
    },
    /// The system refused to run the program.
    #[error("program `{}` could not be run", .program.display())]
    Refused {
        /// What was to be run.
        program: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The guardian of the process could not be started or did not answer.
    #[error("the guardian process could not be started")]
    Guardian(#[source] io::Error),
}

/// A failure on a line, and how far the message had come.
#[derive(Debug)]
pub struct LineError {
    /// What went wrong.
    pub error: TransportError,
    /// What the server may know of the message.
    pub delivery: Delivery,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for LineError {
    /// The reason behind what went wrong, which is said already.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// How far a message may have traveled before the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// No byte left this process. Sending again cannot repeat a side effect.
    NotSent,
    /// The server may have acted on it.
    Unknown,
    /// The server acted on it and said so.
    Answered,
}

impl TransportError {
    /// No answer came in this time.
    pub fn timed_out(waited: Duration) -> Self {
        TransportError::Timeout(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
    }
}

impl LineError {
    /// The message never left.
    pub fn not_sent(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::NotSent }
    }

    /// The message left, and no answer came.
    pub fn unknown(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::Unknown }
    }

    /// The server answered, and the answer was no result.
    pub fn answered(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::Answered }
    }
}

/// A text behind a colon, or nothing.
fn shown(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl From<LineError> for TransportError {
    fn from(failure: LineError) -> Self {
        failure.error
    }
}
