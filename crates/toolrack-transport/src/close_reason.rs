//! Close reason of a transport, exit status of a server process, and the likely cause of an exit.

use std::fmt;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::TransportError;

/// Why a transport closed. Every pending request fails with the same reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed it.
    Closed,
    /// The server's process exited.
    Exited(ProcessExit),
    /// The server closed its input, so no message can be sent.
    InputClosed,
    /// The server closed its output, so no message can arrive.
    OutputClosed,
    /// The connection failed.
    Failed(Arc<io::Error>),
}

/// The exit of a server process, with its last output on stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    /// The exit status.
    pub status: ExitStatus,
    /// The last lines of stderr, oldest first, redacted and sanitized.
    pub stderr: Arc<[String]>,
}

/// How a process exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this exit code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The status was lost, for example with the guardian that waited for the process.
    Unknown,
}

impl CloseReason {
    /// The tasks of a transport were dropped together with their runtime, before the transport was closed.
    pub fn runtime_dropped() -> Self {
        Self::Failed(Arc::new(io::Error::other("the Tokio runtime of this transport was dropped")))
    }

    /// The error of a request that was pending at the close.
    pub fn to_error(&self) -> TransportError {
        match self {
            CloseReason::Closed => TransportError::Shutdown,
            CloseReason::Exited(exit) => TransportError::ProcessExited(exit.clone()),
            CloseReason::InputClosed => TransportError::StdinNotAvailable,
            CloseReason::OutputClosed => TransportError::StdoutNotAvailable,
            CloseReason::Failed(error) => {
                TransportError::Io(io::Error::new(error.kind(), Arc::clone(error)))
            }
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Closed => f.write_str("closed by the client"),
            CloseReason::Exited(exit) => exit.fmt(f),
            CloseReason::InputClosed => f.write_str("the server closed its input"),
            CloseReason::OutputClosed => f.write_str("the server closed its output"),
            CloseReason::Failed(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.status)?;
        match self.stderr.iter().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => write!(f, " (last line on stderr: {})", line.trim()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exited with code {code}"),
            ExitStatus::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            ExitStatus::Unknown => f.write_str("exited with unknown status"),
        }
    }
}

/// Names of the common signals whose numbers are the same on every Unix.
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

/// Prefixes of npm's error lines, new and old.
const NPM_PREFIXES: [&str; 2] = ["npm error", "npm ERR!"];
/// First words of npm error lines that give only circumstances.
const NPM_DETAILS: [&str; 8] =
    ["code", "syscall", "errno", "path", "dest", "signal", "command", "A"];
/// uv prints this before the cause.
const UV_CAUSE: &str = "╰─▶";

/// Picks the line of stderr that most likely says why a process exited, from its last lines, oldest first.
///
/// Launchers such as npm print the cause first, and then the path of their log or their version. The result is only
/// for display; no decision depends on it.
pub fn exit_cause(lines: &[String]) -> Option<String> {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    let last = *lines.iter().rfind(|line| !line.is_empty())?;
    let cause = match last {
        _ if strip_npm_prefix(last).is_some() => npm_cause(&lines),
        _ if last.starts_with("Node.js v") => node_cause(&lines),
        _ => uv_cause(&lines),
    };
    Some(match cause {
        Some(cause) if cause != last => format!("error output: {cause}"),
        _ => format!("last output: {last}"),
    })
}

fn strip_npm_prefix(line: &str) -> Option<&str> {
    NPM_PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix))
}

/// Prefers a line that quotes the missing package to one with a URL.
fn npm_cause(lines: &[&str]) -> Option<String> {
    let is_telling = |line: &&&str| {
        let mut words = strip_npm_prefix(line).unwrap_or_default().split_whitespace();
        match (words.next(), words.next()) {
            (Some(first), Some(_)) => !NPM_DETAILS.contains(&first),
            // A label without text, such as `404`.
            (Some(only), None) => !only.starts_with(|first: char| first.is_ascii_digit()),
            (None, _) => false,
        }
    };
    let mut telling = lines.iter().filter(is_telling);
    let quoting = telling.clone().find(|line| line.matches('\'').count() > 1);
    quoting.or_else(|| telling.next()).map(|line| (*line).to_owned())
}

fn node_cause(lines: &[&str]) -> Option<String> {
    let is_error = |line: &&&str| {
        let name = line.split([':', ' ']).next().unwrap_or_default();
        name.ends_with("Error") && name.len() < line.len()
    };
    lines.iter().rfind(is_error).map(|line| (*line).to_owned())
}

/// uv wraps the cause over several lines.
fn uv_cause(lines: &[&str]) -> Option<String> {
    let start = lines.iter().position(|line| line.starts_with(UV_CAUSE))?;
    let cause = lines.iter().skip(start).take_while(|line| !line.is_empty());
    let text: Vec<&str> = cause.map(|line| line.trim_start_matches(UV_CAUSE).trim()).collect();
    Some(text.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: ExitStatus, stderr: &[&str], expected: &str) {
        let stderr = stderr.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(ProcessExit { status, stderr }.to_string(), expected);
    }

    #[test]
    fn exit_status_is_displayed() {
        check(ExitStatus::Code(1), &[], "process exited with code 1");
        check(
            ExitStatus::Code(1),
            &["npm error 404", " not found ", ""],
            "process exited with code 1 (last line on stderr: not found)",
        );
        check(ExitStatus::Signal(9), &[], "process was killed by signal 9 (SIGKILL)");
        check(ExitStatus::Signal(64), &[], "process was killed by signal 64");
        check(ExitStatus::Unknown, &[], "process exited with unknown status");
    }

    #[track_caller]
    fn check_cause(lines: &str, expected: Option<&str>) {
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        assert_eq!(exit_cause(&lines).as_deref(), expected);
    }

    #[test]
    fn exit_cause_is_the_last_line_unless_a_launcher_reports_it_earlier() {
        check_cause("", None);
        check_cause("  \n", None);
        check_cause("starting\nout of order \n\n", Some("last output: out of order"));
        check_cause("npm error", Some("last output: npm error"));
        let log = "npm error A complete log of this run can be found in: /h/.npm/_logs/x.log";
        let missing = format!(
            "npm warn old\nnpm error code E404\nnpm error 404 Not Found - GET https://host/@a%2fb\nnpm error 404\n\
             npm error 404  '@a/b@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that\n{log}",
        );
        check_cause(
            &missing,
            Some("error output: npm error 404  '@a/b@*' is not in this registry."),
        );
        let version = format!(
            "npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for a@9.\n\
             npm ERR! notarget In most cases you or\n{}",
            log.replace("error", "ERR!"),
        );
        check_cause(
            &version,
            Some("error output: npm ERR! notarget No matching version found for a@9."),
        );
        check_cause(
            &format!("npm error canceled\n{log}"),
            Some("error output: npm error canceled"),
        );
        check_cause(log, Some(&format!("last output: {log}")));
        let module = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n\
            Error: Cannot find module '/x.js'\n    at Module._load (node:internal:1)\n  code: 'X'\n}\n\nNode.js v20.1.0";
        check_cause(module, Some("error output: Error: Cannot find module '/x.js'"));
        check_cause("boom\n\nNode.js v20.1.0", Some("last output: Node.js v20.1.0"));
        let uv = "  × No solution found when resolving tool dependencies:\n  \
            ╰─▶ Because a was not found in the package registry and you\n      require a, it ends.";
        check_cause(
            uv,
            Some(
                "error output: Because a was not found in the package registry and you require a, it ends.",
            ),
        );
    }
}
