//! How a line ended.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::error::TransportError;

/// The last word about a line. Everyone who waited gets the same one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Ending {
    /// We closed it.
    Closed,
    /// The server's process is gone.
    Exited(ServerExit),
    /// The server closed its input, and nothing more can be sent to it.
    InputClosed,
    /// The server closed its output, and nothing more can come from it.
    OutputClosed,
    /// The connection itself broke.
    Failed(Arc<io::Error>),
}

/// The end of a server's process, with what it said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerExit {
    /// How the process ended.
    pub exit: Exit,
    /// The last lines of its error output, oldest first, cleaned for people to see.
    pub stderr: Arc<[String]>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// Nobody could tell, because whoever watched it is gone too.
    Unknown,
}

impl Ending {
    /// The tasks that serve a line were dropped before its end, and their runtime with them.
    pub fn unserved() -> Self {
        Self::Failed(Arc::new(io::Error::other("the runtime in which it was opened has ended")))
    }

    /// The same news for someone who was waiting for an answer.
    pub fn to_error(&self) -> TransportError {
        match self {
            Ending::Closed => TransportError::Shutdown,
            Ending::Exited(exit) => TransportError::ProcessExited(exit.clone()),
            Ending::InputClosed => TransportError::StdinNotAvailable,
            Ending::OutputClosed => TransportError::StdoutNotAvailable,
            Ending::Failed(error) => {
                TransportError::Io(io::Error::new(error.kind(), Arc::clone(error)))
            }
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => f.write_str("closed by us"),
            Ending::Exited(exit) => exit.fmt(f),
            Ending::InputClosed => f.write_str("the server closed its input"),
            Ending::OutputClosed => f.write_str("the server closed its output"),
            Ending::Failed(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.exit)?;
        match self.stderr.iter().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => write!(f, " (last line on stderr: {})", line.trim()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Exit::Unknown => f.write_str("ended in an unknown way"),
        }
    }
}

/// The numbers that are the same on every Unix, and name the ends people meet.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(exit: Exit, stderr: &[&str], expected: &str) {
        let stderr = stderr.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(ServerExit { exit, stderr }.to_string(), expected);
    }

    #[test]
    fn the_way_a_process_ended_can_be_read() {
        check(Exit::Code(1), &[], "process exited with code 1");
        check(
            Exit::Code(1),
            &["npm error 404", " not found ", ""],
            "process exited with code 1 (last line on stderr: not found)",
        );
        check(Exit::Signal(9), &[], "process was killed by signal 9 (SIGKILL)");
        check(Exit::Signal(64), &[], "process was killed by signal 64");
        check(Exit::Unknown, &[], "process ended in an unknown way");
    }
}
