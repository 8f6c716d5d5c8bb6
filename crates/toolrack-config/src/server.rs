//! Server config: transport, package and settings.
//!
//! **Invariant:** nothing is resolved. A `${…}` stays as written until a connection is made.
//! **Invariant:** `Debug` shows no argument, no environment or header value, and no query of a URL,
//! because they may be secrets.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::diagnostics::{Diagnostic, SourceLocation};
use crate::validate;

/// A server config with all defaults applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerConfig {
    /// Server name, unique within an agent.
    pub name: String,
    /// A disabled server is listed and never connected.
    pub enabled: bool,
    /// Transport.
    pub transport: McpTransport,
    /// UUID, once the service assigned one.
    pub id: Option<String>,
    /// Timeout of a call without progress. Progress restarts it.
    pub timeout: Duration,
    /// Total timeout of a call.
    pub max_timeout: Duration,
    /// Timeout of start, handshake and first tool list.
    pub startup_timeout: Duration,
    /// Timeout of a package install, before the start.
    pub install_timeout: Duration,
    /// When the server starts.
    pub start: StartMode,
    /// Idle time before the server is stopped; its tools stay listed. `None` means never.
    pub idle: Option<Duration>,
    /// Longer results are truncated, with a note.
    pub max_output_bytes: usize,
    /// A longer message from the server fails its call.
    pub max_message_bytes: usize,
    /// Allowed tools, as globs on raw names. Empty means all.
    pub allow: Vec<String>,
    /// Denied tools, as globs on raw names. Takes precedence over `allow`.
    pub deny: Vec<String>,
    /// Tools that may be retried when delivery is unknown.
    pub repeatable: Vec<String>,
    /// Whether a child process gets our whole environment instead of the allow-list.
    pub inherit_env: bool,
    /// Policy for changed tool definitions.
    pub pin: Pin,
    /// Sandbox of a child process. `None` means no sandbox.
    pub sandbox: Option<Sandbox>,
    /// Source position, for messages. Not part of the identity.
    pub origin: SourceLocation,
}

/// Transport of a server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpTransport {
    /// A child process on stdio.
    Stdio {
        /// Program on `PATH`, or a path.
        command: String,
        /// Arguments, without shell. `$${` is a literal `${`.
        args: Vec<String>,
        /// Variables added to the environment of every server.
        env: HashMap<String, EnvValue>,
        /// Working directory. Default: ours.
        cwd: Option<String>,
    },
    /// An HTTP endpoint.
    Http {
        /// Endpoint URL.
        url: String,
        /// Request headers.
        headers: HashMap<String, String>,
    },
    /// A published package, to be converted into one of the others by an installer.
    Package {
        /// The package.
        package: Package,
        /// As for [`McpTransport::Stdio`].
        env: HashMap<String, EnvValue>,
        /// As for [`McpTransport::Stdio`].
        cwd: Option<String>,
        /// As for [`McpTransport::Http`], for HTTP packages.
        headers: HashMap<String, String>,
    },
}

/// Value of an environment variable.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// Text that may contain `${…}`.
    Text(String),
    /// A stored secret.
    Secret {
        /// Name of the secret.
        secret_ref: String,
        /// Whether the secret is required. If not, an unknown secret leaves the variable unset.
        required: bool,
    },
}

/// When a server starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartMode {
    /// With the manager.
    #[default]
    Eager,
    /// With the first call; until then its tools come from the tool cache.
    Lazy,
}

impl StartMode {
    /// Name in the config file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Lazy => "lazy",
        }
    }
}

/// Policy for changed tool definitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pin {
    /// Report the change.
    #[default]
    Show,
    /// Withhold the tool until the change is approved.
    Hold,
}

/// Sandbox of a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Readable folders; `None` means all.
    pub read: Option<Vec<String>>,
    /// Writable folders.
    pub write: Vec<String>,
    /// Network access.
    pub net: bool,
}

impl McpServerConfig {
    /// Default timeout of a call.
    pub const TIMEOUT: Duration = Duration::from_mins(2);
    /// Default total timeout of a call.
    pub const MAX_TIMEOUT: Duration = Duration::from_mins(10);
    /// Default startup timeout.
    pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
    /// Default install timeout.
    pub const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);
    /// Default maximum size of a result.
    pub const MAX_OUTPUT_BYTES: usize = 50_000;
    /// Default maximum size of a message.
    pub const MAX_MESSAGE_BYTES: usize = 32 << 20;

    /// An enabled server with default settings.
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
            origin: SourceLocation::default(),
        }
    }

    /// A stdio server with default settings.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let transport =
            McpTransport::Stdio { command: command.into(), args, env: HashMap::new(), cwd: None };
        Self::new(name, transport)
    }

    /// An HTTP server with default settings.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name, McpTransport::Http { url: url.into(), headers: HashMap::new() })
    }

    /// The violation of the naming rules, if any. For a config built in code; a file is checked when it is
    /// read.
    pub fn name_fault(&self) -> Option<Diagnostic> {
        let (kind, message) = validate::server_name(&self.name)?;
        let (file, at) = (self.origin.shared_file(), self.origin.field("name"));
        let message = format!("`{}` {message}", self.name.escape_debug());
        Some(Diagnostic::error(kind, file, at, ("name".to_owned(), message)))
    }

    /// Whether the headers authenticate, so that no OAuth login is needed.
    pub fn has_authorization(&self) -> bool {
        match &self.transport {
            McpTransport::Stdio { .. } => false,
            McpTransport::Http { headers, .. } | McpTransport::Package { headers, .. } => {
                headers.keys().any(|key| key.eq_ignore_ascii_case("authorization"))
            }
        }
    }
}

impl McpTransport {
    /// Name in the config file and in lists.
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

/// The URL without user, password, query and fragment.
pub fn without_secrets(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (shown, _query) = url.split_at(end);
    let Some((scheme, rest)) = shown.split_once("://") else { return shown.to_owned() };
    let authority = rest.find('/').unwrap_or(rest.len());
    // The last `@`: a password may contain others.
    match rest.split_at(authority).0.rfind('@') {
        Some(at) => format!("{scheme}://…{}", rest.split_at(at).1),
        None => shown.to_owned(),
    }
}

/// A published package.
#[derive(Clone, PartialEq, Eq)]
pub struct Package {
    /// Registry; determines how the package is run.
    pub kind: PackageKind,
    /// Identifier: a package, an image, a path or a URL.
    pub identifier: String,
    /// Version. `None` means the newest.
    pub version: Option<String>,
    /// Arguments of the server.
    pub args: Vec<String>,
    /// Program within the package. `None` means its own or only one.
    pub program: Option<String>,
    /// Arguments of the package runner, such as `docker run`.
    pub runtime_args: Vec<String>,
}

/// Package registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackageKind {
    /// npm.
    Npm,
    /// PyPI.
    Pypi,
    /// A container image.
    Docker,
    /// A local program.
    Binary,
    /// An HTTP endpoint.
    Http,
}

impl PackageKind {
    /// All registries.
    pub const ALL: [PackageKind; 5] =
        [Self::Npm, Self::Pypi, Self::Docker, Self::Binary, Self::Http];

    /// Name in the config file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Docker => "docker",
            Self::Binary => "binary",
            Self::Http => "http",
        }
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("kind", &self.kind)
            .field("identifier", &without_secrets(&self.identifier))
            .field("version", &self.version)
            .field("n_args", &self.args.len())
            .field("program", &self.program)
            .field("n_runtime_args", &self.runtime_args.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_values() {
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
    fn urls_are_printed_without_secrets() {
        check("https://host/path", "https://host/path");
        check("https://host/path?key=1#x", "https://host/path");
        check("https://user:pass@host/a@b", "https://…@host/a@b");
        check("${URL}", "${URL}");
    }
}
