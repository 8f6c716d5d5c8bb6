//! One configured server: how it is reached, and how it is to be treated.
//!
//! **Invariant:** nothing here is resolved. A `${…}` stays as it was typed until a connection is made.
//! **Invariant:** `Debug` shows no argument, no value of a variable or header, and no query of an URL,
//! because people put secrets there.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::diagnostic::{Fault, Severity};
use crate::package::Package;
use crate::source_location::Origin;
use crate::validate;

/// A server as its user described it, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerConfig {
    /// What people and agents call it. Unique within an agent.
    pub name: String,
    /// A server that is not enabled is listed and never connected.
    pub enabled: bool,
    /// How it is reached.
    pub transport: McpTransport,
    /// Its lasting identity, once the service has given it one.
    pub id: Option<String>,
    /// One call without a sign of work from the server. Progress starts it again.
    pub timeout: Duration,
    /// One call in all, whatever progress there is.
    pub max_timeout: Duration,
    /// The whole of a connection: start, handshake, first list of tools.
    pub startup_timeout: Duration,
    /// Installing a package, before its server is started.
    pub install_timeout: Duration,
    /// When it is started.
    pub start: StartMode,
    /// How long it may be unused before it is stopped; its tools stay listed. Never, if not given.
    pub idle: Option<Duration>,
    /// A longer result is cut, and says so.
    pub max_output_bytes: usize,
    /// A longer message of the server fails the call it answers.
    pub max_message_bytes: usize,
    /// Tools to offer, as globs on their raw names. All, if empty.
    pub allow: Vec<String>,
    /// Tools to withhold, as globs on their raw names. Wins over `allow`.
    pub deny: Vec<String>,
    /// Tools that may be called again when it is unknown whether a call arrived.
    pub repeatable: Vec<String>,
    /// Whether a child process sees our whole environment instead of the short list.
    pub inherit_env: bool,
    /// What happens when a tool's definition is not the one first seen.
    pub pin: Pin,
    /// What a child process may touch. Everything, if not given.
    pub sandbox: Option<Sandbox>,
    /// Where it was written, for messages about it. Not part of what it is.
    pub origin: Origin,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpTransport {
    /// A child process that speaks on its standard streams.
    Stdio {
        /// A program on `PATH`, or a path to one.
        command: String,
        /// Each one as it is, once its `${…}` are filled in; no shell reads them. `$${` is a `${` that stays.
        args: Vec<String>,
        /// Added to the environment that every server gets.
        env: HashMap<String, EnvValue>,
        /// Where it runs. Ours, if not given.
        cwd: Option<String>,
    },
    /// An endpoint on the network.
    Http {
        /// Where requests go.
        url: String,
        /// Sent with every request.
        headers: HashMap<String, String>,
    },
    /// A published package. Whoever can look up package runners turns it into one of the others.
    Package {
        /// What to run or to reach.
        package: Package,
        /// As for [`McpTransport::Stdio`].
        env: HashMap<String, EnvValue>,
        /// As for [`McpTransport::Stdio`].
        cwd: Option<String>,
        /// As for [`McpTransport::Http`], for packages that are endpoints.
        headers: HashMap<String, String>,
    },
}

/// The value of a variable in a server's environment.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// Text that may contain `${…}`.
    Text(String),
    /// A secret by name.
    Secret {
        /// The name under which the secret is stored.
        secret_ref: String,
        /// Whether the server cannot do without. If it can, an unknown secret leaves the variable unset.
        required: bool,
    },
}

/// When a server is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartMode {
    /// With everything else.
    #[default]
    Eager,
    /// By the first call; until then its tools come from the catalogue.
    Lazy,
}

/// What happens when a tool's definition is not the one first seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pin {
    /// The change is shown.
    #[default]
    Show,
    /// The tool is withheld until somebody approves the change.
    Hold,
}

/// What a child process may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Folders it may read; everything, if not given.
    pub read: Option<Vec<String>>,
    /// Folders it may write.
    pub write: Vec<String>,
    /// Whether it may use the network.
    pub net: bool,
}

impl McpServerConfig {
    /// How long a call waits unless a config says otherwise.
    pub const TIMEOUT: Duration = Duration::from_mins(2);
    /// How long a call may take in all.
    pub const MAX_TIMEOUT: Duration = Duration::from_mins(10);
    /// How long a server may take to be ready.
    pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long a package may take to be installed.
    pub const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);
    /// How much of a result is passed on.
    pub const MAX_OUTPUT_BYTES: usize = 50_000;
    /// The longest message taken from a server.
    pub const MAX_MESSAGE_BYTES: usize = 32 << 20;

    /// An enabled server with everything else at its default.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            enabled: true,
            transport,
            id: None,
            timeout: Self::TIMEOUT,
            max_timeout: Self::MAX_TIMEOUT,
            startup_timeout: Self::STARTUP_TIMEOUT,
            install_timeout: Self::INSTALL_TIMEOUT,
            start: StartMode::default(),
            idle: None,
            max_output_bytes: Self::MAX_OUTPUT_BYTES,
            max_message_bytes: Self::MAX_MESSAGE_BYTES,
            allow: Vec::new(),
            deny: Vec::new(),
            repeatable: Vec::new(),
            inherit_env: false,
            pin: Pin::default(),
            sandbox: None,
            origin: Origin::default(),
        }
    }

    /// A child process with everything else at its default.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: &[&str]) -> Self {
        let args = args.iter().map(|&it| it.to_owned()).collect();
        let transport =
            McpTransport::Stdio { command: command.into(), args, env: HashMap::new(), cwd: None };
        Self::new(name, transport)
    }

    /// An endpoint with everything else at its default.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name, McpTransport::Http { url: url.into(), headers: HashMap::new() })
    }

    /// What is wrong with its name, if anything is. For a config that was built in code; a file is checked when it is
    /// read.
    pub fn name_fault(&self) -> Option<Fault> {
        let (kind, complaint) = validate::server_name(&self.name)?;
        Some(Fault {
            severity: Severity::Error,
            kind,
            file: self.origin.shared_file(),
            at: self.origin.field("name"),
            field: "name".to_owned(),
            message: format!("`{}` {complaint}", self.name.escape_debug()),
            nearest: None,
            advice: None,
        })
    }

    /// Whether its headers say who we are, so that nobody logs in.
    pub fn has_authorization(&self) -> bool {
        match &self.transport {
            McpTransport::Stdio { .. } => false,
            McpTransport::Http { headers, .. } | McpTransport::Package { headers, .. } => {
                headers.keys().any(|it| it.eq_ignore_ascii_case("authorization"))
            }
        }
    }
}

impl McpTransport {
    /// The word for it in a config file and in lists.
    pub fn kind(&self) -> &'static str {
        match self {
            McpTransport::Stdio { .. } => "stdio",
            McpTransport::Http { .. } => "http",
            McpTransport::Package { .. } => "package",
        }
    }
}

impl From<&str> for EnvValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for EnvValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvValue::Text(_) => f.write_str("Text(…)"),
            EnvValue::Secret { secret_ref, required } => f
                .debug_struct("Secret")
                .field("secret_ref", secret_ref)
                .field("required", required)
                .finish(),
        }
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            McpTransport::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("n_args", &args.len())
                .field("env", &sorted_names(env))
                .field("cwd", cwd)
                .finish(),
            McpTransport::Http { url, headers } => f
                .debug_struct("Http")
                .field("url", &without_secrets(url))
                .field("headers", &sorted_names(headers))
                .finish(),
            McpTransport::Package { package, env, cwd, headers } => f
                .debug_struct("Package")
                .field("package", package)
                .field("env", &sorted_names(env))
                .field("cwd", cwd)
                .field("headers", &sorted_names(headers))
                .finish(),
        }
    }
}

pub(crate) fn sorted_names<V>(map: &HashMap<String, V>) -> Vec<&str> {
    let mut names: Vec<&str> = map.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// An URL without what may be secret in it: user, password, query and fragment.
pub fn without_secrets(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (shown, _query) = url.split_at(end);
    let Some((scheme, rest)) = shown.split_once("://") else { return shown.to_owned() };
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest.split_at(authority).0.rfind('@') {
        Some(at) => format!("{scheme}://…{}", rest.split_at(at).1),
        None => shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_shows_no_values() {
        let mut stdio = McpServerConfig::stdio("db", "npx", &["--token=s3cret"]);
        let McpTransport::Stdio { env, .. } = &mut stdio.transport else { panic!() };
        env.insert("TOKEN".into(), "s3cret".into());
        let http = McpTransport::Http {
            url: "https://s3cret@host/path?key=s3cret".into(),
            headers: HashMap::from([("Authorization".into(), "Bearer s3cret".into())]),
        };
        let shown = format!("{stdio:?} {http:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("TOKEN") && shown.contains("Authorization"), "{shown}");
    }

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(without_secrets(url), expected);
    }

    #[test]
    fn urls_are_shown_without_secrets() {
        check("https://host/path", "https://host/path");
        check("https://host/path?key=1#x", "https://host/path");
        check("https://user:pass@host/a@b", "https://…@host/a@b");
        check("${URL}", "${URL}");
    }
}
