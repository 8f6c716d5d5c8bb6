//! Server config: transport, package and settings.
//!
//! **Invariant:** nothing is resolved. A `${…}` stays as written until a connection is made.
//! **Invariant:** `Debug` shows no argument, no environment or header value, and no query of a URL,
//! because they may be secrets.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config_file::{ServerEntry, Settings};
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
    /// The rest of a longer list from the server is dropped. `None` means the limit of the client.
    pub max_list_bytes: Option<usize>,
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

/// Transport of a server: as written in the file, or with all references resolved
/// ([`ResolvedTransport`](crate::ResolvedTransport)).
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum McpTransport<Text = String, Env = EnvValue> {
    /// A child process on stdio.
    Stdio {
        /// Program on `PATH`, or a path.
        command: Text,
        /// Arguments, without shell. `$${` is a literal `${`.
        args: Vec<Text>,
        /// Variables added to the environment of every server.
        env: HashMap<String, Env>,
        /// Working directory. Default: ours.
        cwd: Option<Text>,
    },
    /// An HTTP endpoint.
    Http {
        /// Endpoint URL.
        url: Text,
        /// Request headers.
        headers: HashMap<String, Text>,
    },
    /// A published package, to be converted into one of the others by an installer.
    Package {
        /// The package.
        package: Package<Text>,
        /// As for [`McpTransport::Stdio`].
        env: HashMap<String, Env>,
        /// As for [`McpTransport::Stdio`].
        cwd: Option<Text>,
        /// As for [`McpTransport::Http`], for HTTP packages.
        headers: HashMap<String, Text>,
    },
}

/// Value of an environment variable.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EnvValue {
    /// Text that may contain `${…}`.
    Text(String),
    /// A stored secret.
    Secret {
        /// Name of the secret.
        secret_ref: String,
        /// Whether the secret is required. If not, the variable of an unknown secret is empty.
        required: bool,
    },
}

/// When a server starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StartMode {
    /// With the manager.
    #[default]
    Eager,
    /// With the first call; until then its tools come from the tool cache.
    Lazy,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sandbox {
    /// Readable folders; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    /// Writable folders.
    pub write: Vec<String>,
    /// Network access.
    pub net: bool,
}

/// An enabled stdio server without a name and a command, for the other fields of a literal.
impl Default for McpServerConfig {
    fn default() -> Self {
        Self::stdio("", "", &[])
    }
}

impl McpServerConfig {
    /// An enabled server with default settings.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        ServerEntry::new(name, transport).config(&Settings::default())
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
        let (file, at) = (self.origin.file().unwrap_or_default(), self.origin.field("name"));
        let message = format!("`{}` {message}", self.name.escape_debug());
        Some(Diagnostic::error(kind, file, at, ("name".to_owned(), message)))
    }

    /// Whether the headers authenticate, so that no OAuth login is needed.
    pub fn has_authorization(&self) -> bool {
        let (McpTransport::Http { headers, .. } | McpTransport::Package { headers, .. }) =
            &self.transport
        else {
            return false;
        };
        headers.keys().any(|key| key.eq_ignore_ascii_case("authorization"))
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
            EnvValue::Secret { secret_ref, .. } => write!(f, "Secret({secret_ref:?})"),
        }
    }
}

/// A text of a config, as `Debug` may show it.
pub(crate) trait ConfigText {
    fn shown(&self) -> String;

    /// The text as an argument, which may be a secret.
    fn shown_argument(&self) -> String {
        "…".to_owned()
    }
}

impl ConfigText for String {
    fn shown(&self) -> String {
        without_secrets(self)
    }
}

impl<Text: ConfigText, Env> fmt::Debug for McpTransport<Text, Env> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            McpTransport::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", &command.shown())
                .field("args", &shown_arguments(args))
                .field("env", &sorted_names(env))
                .field("cwd", &cwd.as_ref().map(Text::shown))
                .finish(),
            McpTransport::Http { url, headers } => f
                .debug_struct("Http")
                .field("url", &url.shown())
                .field("headers", &sorted_names(headers))
                .finish(),
            McpTransport::Package { package, env, cwd, headers } => f
                .debug_struct("Package")
                .field("package", package)
                .field("env", &sorted_names(env))
                .field("cwd", &cwd.as_ref().map(Text::shown))
                .field("headers", &sorted_names(headers))
                .finish(),
        }
    }
}

fn shown_arguments<Text: ConfigText>(args: &[Text]) -> Vec<String> {
    args.iter().map(Text::shown_argument).collect()
}

fn sorted_names<V>(map: &HashMap<String, V>) -> BTreeSet<&String> {
    map.keys().collect()
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
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Package<Text = String> {
    /// Registry; determines how the package is run.
    #[serde(rename = "type")]
    pub kind: PackageKind,
    /// Identifier: a package, an image, a path or a URL.
    pub identifier: Text,
    /// Version. `None` means the newest.
    pub version: Option<String>,
    /// Arguments of the server.
    pub args: Vec<Text>,
    /// Program within the package. `None` means its own or only one.
    pub program: Option<String>,
    /// Program that runs the package, one of [`PackageKind::runners`]. `None` means that an npm or PyPI package is
    /// installed and started directly, and an image is run with the first one.
    pub runtime_hint: Option<String>,
    /// Arguments of the package runner, such as `docker run`.
    pub runtime_args: Vec<Text>,
}

/// Package registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    /// The programs that run such a package; the first is the usual one.
    pub fn runners(self) -> &'static [&'static str] {
        match self {
            Self::Npm => &["npx", "bunx", "pnpm"],
            Self::Pypi => &["uvx", "pipx"],
            Self::Docker => &["docker", "podman"],
            Self::Binary | Self::Http => &[],
        }
    }
}

impl<Text: ConfigText> fmt::Debug for Package<Text> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("kind", &self.kind)
            .field("identifier", &self.identifier.shown())
            .field("version", &self.version)
            .field("args", &shown_arguments(&self.args))
            .field("program", &self.program)
            .field("runtime_hint", &self.runtime_hint)
            .field("runtime_args", &shown_arguments(&self.runtime_args))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_of_three_fields_has_the_defaults_of_a_file() {
        let written = McpServerConfig::http("db", "https://host/mcp");
        let literal = McpServerConfig {
            name: "db".to_owned(),
            transport: written.transport.clone(),
            enabled: true,
            ..Default::default()
        };
        assert_eq!(literal, written);
    }

    #[test]
    fn debug_shows_no_values() {
        let mut stdio = McpServerConfig::stdio("db", "npx", &["--token=s3cret"]);
        let McpTransport::Stdio { env, .. } = &mut stdio.transport else { panic!() };
        env.insert("TOKEN".into(), "s3cret".into());
        let http: McpTransport = McpTransport::Http {
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
