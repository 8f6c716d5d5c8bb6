//! How a line ended.

use crate::error::TransportError;
use std::fmt;
use std::io;
use std::sync::Arc;

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

// FOLDED exit_cause.rs
// Which of the last words of a process say most about why it ended.
//
// Launchers say why first, and then where their log is or who they are. What is picked is shown to people, and
// nothing is decided by it.

/// How npm begins the lines about its own failures, new and old.
const NPM: [&str; 2] = ["npm error", "npm ERR!"];
/// What npm says behind that about the circumstances only.
const NPM_ASIDE: [&str; 8] = ["code", "syscall", "errno", "path", "dest", "signal", "command", "A"];
/// What uv puts before the reason.
const UV_CAUSE: &str = "╰─▶";

/// What a process said that tells most, from its last lines, oldest first. In words for people.
pub fn said(lines: &[String]) -> Option<String> {
    let lines: Vec<&str> = lines.iter().map(|it| it.trim()).collect();
    let last = *lines.iter().rfind(|it| !it.is_empty())?;
    let cause = match last {
        _ if of_npm(last).is_some() => npm_cause(&lines),
        _ if last.starts_with("Node.js v") => node_cause(&lines),
        _ => uv_cause(&lines),
    };
    Some(match cause {
        Some(cause) if cause != last => format!("it said: {cause}"),
        _ => format!("it said last: {last}"),
    })
}

fn of_npm(line: &str) -> Option<&str> {
    NPM.iter().find_map(|it| line.strip_prefix(it))
}

/// A line that quotes what it could not find says more than one with an address.
fn npm_cause(lines: &[&str]) -> Option<String> {
    let tells = |line: &&&str| {
        let mut words = of_npm(line).unwrap_or_default().split_whitespace();
        match (words.next(), words.next()) {
            (Some(first), Some(_)) => !NPM_ASIDE.contains(&first),
            // A label without words, such as `404`.
            (Some(only), None) => !only.starts_with(|it: char| it.is_ascii_digit()),
            (None, _) => false,
        }
    };
    let mut telling = lines.iter().filter(tells);
    let quotes = telling.clone().find(|it| it.matches('\'').count() > 1);
    quotes.or_else(|| telling.next()).map(|it| (*it).to_owned())
}

fn node_cause(lines: &[&str]) -> Option<String> {
    let is_error = |line: &&&str| {
        let name = line.split([':', ' ']).next().unwrap_or_default();
        name.ends_with("Error") && name.len() < line.len()
    };
    lines.iter().rfind(is_error).map(|it| (*it).to_owned())
}

/// The reason goes over several lines.
fn uv_cause(lines: &[&str]) -> Option<String> {
    let at = lines.iter().position(|it| it.starts_with(UV_CAUSE))?;
    let reason = lines.iter().skip(at).take_while(|it| !it.is_empty());
    let text: Vec<&str> = reason.map(|it| it.trim_start_matches(UV_CAUSE).trim()).collect();
    Some(text.join(" "))
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

    #[track_caller]
    fn check_cause(lines: &str, expected: Option<&str>) {
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        assert_eq!(said(&lines).as_deref(), expected);
    }

    #[test]
    fn the_last_line_counts_unless_a_launcher_is_known_to_say_why_before() {
        check_cause("", None);
        check_cause("  \n", None);
        check_cause("starting\nout of order \n\n", Some("it said last: out of order"));
        check_cause("npm error", Some("it said last: npm error"));
        let log = "npm error A complete log of this run can be found in: /h/.npm/_logs/x.log";
        let missing = format!(
            "npm warn old\nnpm error code E404\nnpm error 404 Not Found - GET https://host/@a%2fb\nnpm error 404\n\
             npm error 404  '@a/b@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that\n{log}",
        );
        check_cause(&missing, Some("it said: npm error 404  '@a/b@*' is not in this registry."));
        let version = format!(
            "npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for a@9.\n\
             npm ERR! notarget In most cases you or\n{}",
            log.replace("error", "ERR!"),
        );
        check_cause(
            &version,
            Some("it said: npm ERR! notarget No matching version found for a@9."),
        );
        check_cause(&format!("npm error canceled\n{log}"), Some("it said: npm error canceled"));
        check_cause(log, Some(&format!("it said last: {log}")));
        let module = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n\
            Error: Cannot find module '/x.js'\n    at Module._load (node:internal:1)\n  code: 'X'\n}\n\nNode.js v20.1.0";
        check_cause(module, Some("it said: Error: Cannot find module '/x.js'"));
        check_cause("boom\n\nNode.js v20.1.0", Some("it said last: Node.js v20.1.0"));
        let uv = "  × No solution found when resolving tool dependencies:\n  \
            ╰─▶ Because a was not found in the package registry and you\n      require a, it ends.";
        check_cause(
            uv,
            Some(
                "it said: Because a was not found in the package registry and you require a, it ends.",
            ),
        );
    }
}
