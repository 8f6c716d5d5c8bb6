//! Transport errors, spawn errors, and how far a message was delivered before the failure.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::close_reason::ProcessExit;
use crate::credentials::AuthError;
use crate::json_rpc::JsonRpcError;

/// Why a transport failed. Variants that founding document 001 names keep their names; its `IdMismatch` is absent,
/// because responses are matched by id and cannot be mismatched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The server's process did not start.
    #[error(transparent)]
    Spawn(SpawnError),
    /// The server closed its stdin.
    #[error("the server closed its input")]
    StdinNotAvailable,
    /// The server closed its stdout. Its process may still run.
    #[error("the server closed its output")]
    StdoutNotAvailable,
    /// The connection failed.
    #[error("IO error: {}", with_causes(.0))]
    Io(io::Error),
    /// The message is not serializable.
    #[error("failed to serialize request: {0}")]
    Serialize(serde_json::Error),
    /// The response is not valid. The text says why.
    #[error("failed to parse response: {0}")]
    Parse(String),
    /// The server responded with an error.
    #[error("{0}")]
    JsonRpc(#[from] JsonRpcError),
    /// No response within this many milliseconds.
    #[error("request timed out after {0}ms")]
    Timeout(u64),
    /// The response exceeded the size limit and was discarded.
    #[error("response exceeds the limit of {limit_bytes} bytes")]
    Oversize {
        /// The maximum size of a message.
        limit_bytes: usize,
    },
    /// The server does not read, and the write queue is full.
    #[error("the server is not reading its input ({buffered_bytes} bytes are queued)")]
    QueueFull {
        /// The size of the queue.
        buffered_bytes: usize,
    },
    /// The connection to the server's address failed.
    #[error("cannot connect to {address}")]
    Unreachable {
        /// The address, without secrets.
        address: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// An HTTP server responded with an error status instead of a JSON-RPC response.
    #[error("the server responded with HTTP status {code}{}", with_colon(.text))]
    Status {
        /// The status code.
        code: u16,
        /// The beginning of the body, sanitized.
        text: String,
    },
    /// Authentication or authorization failed.
    #[error("{0}")]
    Unauthorized(#[from] AuthError),
    /// The server lost the session, and a new one could not be initialized.
    #[error("the server ended the session")]
    SessionLost,
    /// The server's process exited.
    #[error("{0}")]
    ProcessExited(ProcessExit),
    /// The transport was closed on our side.
    #[error("transport is shut down")]
    Shutdown,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program in any directory of `PATH`.
    #[error("program `{program}` not found in PATH ({path})")]
    NotFound {
        /// The name of the program.
        program: String,
        /// The `PATH` that was searched.
        path: String,
    },
    /// The given path does not exist.
    #[error("program `{}` does not exist", .0.display())]
    NoSuchFile(PathBuf),
    /// The path is not an executable file.
    #[error("`{}` is not an executable program", .0.display())]
    NotExecutable(PathBuf),
    /// The working directory does not exist or is not a directory.
    #[error("working directory `{}` does not exist or is not a directory", .0.display())]
    InvalidWorkingDir(PathBuf),
    /// An argument or variable contains a NUL byte, so it cannot be passed to a program.
    #[error("{field} contains a NUL byte")]
    NulByte {
        /// The field of the server definition.
        field: String,
    },
    /// The system did not execute the program.
    #[error("cannot execute program `{}`", .program.display())]
    ExecFailed {
        /// The program.
        program: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The guardian process did not start or did not respond.
    #[error("cannot start the guardian process")]
    Guardian(#[source] io::Error),
}

/// The failure of a message, and how far the message was delivered.
#[derive(Debug)]
pub struct RequestError {
    /// The failure.
    pub error: TransportError,
    /// How far the message was delivered.
    pub delivery: Delivery,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for RequestError {
    /// `Display` already shows `error`, so the chain continues with its source.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// How far a message was delivered before the failure. Retry decisions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// No byte left this process. Sending again cannot repeat a side effect.
    NotSent,
    /// The server may have acted on it.
    Unknown,
    /// The server responded.
    Answered,
}

// `Display` of these two shows the cause, as founding document 001 has it, so they have no source: a chain of causes
// would show it twice.

/// The error and everything that caused it, such as hyper's error and the system's.
fn with_causes(error: &io::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        TransportError::Io(error)
    }
}

impl From<serde_json::Error> for TransportError {
    fn from(error: serde_json::Error) -> Self {
        TransportError::Serialize(error)
    }
}

impl TransportError {
    /// Whether the server's process exited. Founding document 001 writes `matches!(e, TransportError::ProcessExited)`;
    /// here the variant also says how it exited.
    pub fn is_process_exited(&self) -> bool {
        matches!(self, TransportError::ProcessExited(_))
    }

    /// A timeout after `waited`.
    pub fn timed_out(waited: Duration) -> Self {
        TransportError::Timeout(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
    }
}

impl RequestError {
    /// No byte of the message was sent.
    pub fn not_sent(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::NotSent }
    }

    /// The message was sent, and no response arrived.
    pub fn unknown(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::Unknown }
    }

    /// The server responded, but not with a result.
    pub fn answered(error: impl Into<TransportError>) -> Self {
        Self { error: error.into(), delivery: Delivery::Answered }
    }
}

fn with_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl From<RequestError> for TransportError {
    fn from(error: RequestError) -> Self {
        error.error
    }
}
