//! Connectors: from a server's config to an open transport.
//!
//! Resolves the variables of a config, passes packages to the [`PackageInstaller`], builds the stdio or HTTP
//! connector, and wraps it in a [`ClosingConnector`].
//!
//! **Invariant:** when [`ClosingConnector::close`] returns, every transport that was opened here is closed, even if
//! the caller of an open has stopped waiting.
//! **Invariant:** `Debug` shows no argument and no value of a variable or header.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_client::{Connector, HttpConnector, StdioConnector};
use toolrack_config::{
    Diagnostic, DiagnosticKind, McpServerConfig, Package, Pin, Resolved, ResolvedTransport,
    VariableSource, interpolate,
};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{CleanupCommand, EnvInheritance, McpServerDef, StdioOptions};
use toolrack_transport::{
    BoxFuture, IncomingHandler, Redactor, Transport, TransportError, sanitize_line,
};

use crate::builder::ManagerBuilder;
use crate::error::{ErrorKind, Failure};
use crate::events::ManagerEvent;
use crate::manager::Shared;
use crate::rate_limit::RateLimiter;
use crate::redacting_transport::{RedactingHandler, redacting};

/// Maximum length of a line of installer output.
const MAX_LINE_CHARS: usize = 1000;

/// Variables that identify the user or the machine and grant no access. Redacting them would damage every path in a
/// result.
const NOT_SECRET: [&str; 8] =
    ["HOME", "HOSTNAME", "LANG", "LOGNAME", "PWD", "SHELL", "TERM", "USER"];

/// Resolves the variables of a config.
pub(crate) async fn resolve(
    config: &Arc<McpServerConfig>,
    settings: &ManagerBuilder,
) -> Result<ResolvedTransport, Failure> {
    if let Some(key) = unsupported_protection(config) {
        // Fail closed: the server must not run without a protection that its config asks for.
        let reason = format!("`{key}` is set, but this build does not support it");
        let hint = format!("remove `{key}` from the server's config to run it without");
        return Err(Failure::new(ErrorKind::BadConfig, reason).with_hint(hint));
    }
    let resolved = match interpolate_without_lookup(config) {
        Some(resolved) => Ok(resolved),
        None => {
            let (config, lookup) = (Arc::clone(config), Arc::clone(&settings.lookup));
            // A lookup may read files or wait for a keyring, which must not block the runtime.
            tokio::task::spawn_blocking(move || interpolate(&config, &*lookup)).await
        }
    };
    match resolved {
        Ok(Ok(resolved)) => {
            register_header_secrets(&resolved, &settings.stdio.redactor);
            Ok(resolved)
        }
        Ok(Err(diagnostics)) => Err(unresolved(&diagnostics)),
        Err(_panicked) => {
            let reason = "resolving variables of the config panicked";
            Err(Failure::new(ErrorKind::Internal, reason))
        }
    }
}

/// Resolves a config that needs no lookup; `None` for others.
fn interpolate_without_lookup(
    config: &McpServerConfig,
) -> Option<Result<ResolvedTransport, Vec<Diagnostic>>> {
    let is_needed = Cell::new(false);
    let resolved = interpolate(config, &|_source: VariableSource, _name: &str| {
        is_needed.set(true);
        Ok(None)
    });
    (!is_needed.get()).then_some(resolved)
}

/// Adds the variables in headers to the redactor. A value in a header is a credential, even if it comes from the
/// environment.
fn register_header_secrets(resolved: &ResolvedTransport, redactor: &Redactor) {
    let (ResolvedTransport::Http { headers, .. } | ResolvedTransport::Package { headers, .. }) =
        resolved
    else {
        return;
    };
    let variables = headers.values().flat_map(Resolved::found);
    for (name, value) in variables.filter(|(name, _)| !NOT_SECRET.contains(name)) {
        redactor.add_secret(name, value);
    }
}

/// Builds the connector of a process or an HTTP endpoint.
pub(crate) fn build_connector(
    prepared: PreparedServer,
    config: &McpServerConfig,
    settings: &ManagerBuilder,
) -> Arc<dyn Connector> {
    match prepared {
        PreparedServer::Stdio { definition, cleanup } => {
            let options = StdioOptions { cleanup, ..stdio_options(config, settings) };
            Arc::new(StdioConnector { definition, options })
        }
        PreparedServer::Http(definition) => {
            let credentials = settings.credentials.as_ref().and_then(|provider| provider(config));
            let options = HttpOptions {
                max_message_bytes: config.max_message_bytes,
                // Those for this server win over those for all servers.
                credentials: credentials.or_else(|| settings.http.credentials.clone()),
                ..settings.http.clone()
            };
            Arc::new(HttpConnector { definition, options })
        }
    }
}

/// Converts the resolved config of a server that is not a package.
pub(crate) fn prepare_without_package(
    resolved: ResolvedTransport,
) -> Result<PreparedServer, Failure> {
    match resolved {
        ResolvedTransport::Stdio { command, args, env, cwd } => {
            let definition = McpServerDef {
                command: command.into_revealed(),
                args: args.into_iter().map(Resolved::into_revealed).collect(),
                env: reveal_values(env),
                cwd: cwd.map(|cwd| PathBuf::from(cwd.into_revealed())),
            };
            Ok(PreparedServer::Stdio { definition, cleanup: None })
        }
        ResolvedTransport::Http { url, headers } => Ok(PreparedServer::Http(HttpServerDef {
            url: url.into_revealed(),
            headers: reveal_values(headers).into_iter().collect(),
        })),
        _ => {
            let reason = "this build does not support the server's transport";
            Err(Failure::new(ErrorKind::BadConfig, reason))
        }
    }
}

pub(crate) fn stdio_options(config: &McpServerConfig, settings: &ManagerBuilder) -> StdioOptions {
    StdioOptions {
        max_message_bytes: config.max_message_bytes,
        inherit_env: env_inheritance(config),
        ..settings.stdio.clone()
    }
}

pub(crate) fn env_inheritance(config: &McpServerConfig) -> EnvInheritance {
    if config.inherit_env { EnvInheritance::All } else { EnvInheritance::default() }
}

/// The failure of a config whose variables cannot be resolved. A missing value in `env` or `headers` is most likely a
/// missing credential.
fn unresolved(diagnostics: &[Diagnostic]) -> Failure {
    let is_credential = |diagnostic: &Diagnostic| {
        diagnostic.field.contains(".env.") || diagnostic.field.contains(".headers.")
    };
    let is_missing = |diagnostic: &Diagnostic| {
        diagnostic.kind == DiagnosticKind::Unresolved && is_credential(diagnostic)
    };
    let kind = if diagnostics.iter().any(is_missing) {
        ErrorKind::MissingCredentials
    } else {
        ErrorKind::BadConfig
    };
    let messages: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    let advice = diagnostics.iter().find_map(|diagnostic| diagnostic.advice.as_deref());
    Failure::new(kind, messages.join("; ")).with_hint_if_any(advice)
}

/// A protection that the config asks for and this build does not have.
fn unsupported_protection(config: &McpServerConfig) -> Option<&'static str> {
    let sandbox = config.sandbox.is_some().then_some("sandbox");
    sandbox.or((config.pin == Pin::Hold).then_some("pin"))
}

/// Hook that installs packages.
pub trait PackageInstaller: Send + Sync {
    /// Returns a package as a server that can be started or reached, after installing it if necessary.
    ///
    /// The caller's timeout is [`Installation::stop`]: when it is cancelled, the installer ends all its processes,
    /// and then returns.
    ///
    /// # Cancel safety
    /// Dropping the future ends the processes of the installer, without waiting for them.
    fn prepare(
        &self,
        package: PackageRequest,
        installation: Installation,
    ) -> BoxFuture<'_, Result<PreparedServer, Failure>>;
}

/// A package as configured, with all variables resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct PackageRequest {
    /// Name of the server.
    pub server: Arc<str>,
    /// The package.
    pub package: Package,
    /// Environment variables of the server.
    pub env: HashMap<String, String>,
    /// Working directory of the server.
    pub cwd: Option<PathBuf>,
    /// HTTP headers of every request, if the package is an endpoint.
    pub headers: HashMap<String, String>,
}

/// A server that is ready to be started or reached.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreparedServer {
    /// A process to start.
    Stdio {
        /// The command.
        definition: McpServerDef,
        /// Clean-up command to run after the process tree has ended.
        cleanup: Option<CleanupCommand>,
    },
    /// An HTTP endpoint.
    Http(HttpServerDef),
}

/// An installation in progress, as the installer sees it.
#[derive(Clone)]
pub struct Installation {
    pub(crate) server: Arc<str>,
    pub(crate) stdio: StdioOptions,
    pub(crate) stop: CancellationToken,
    pub(crate) on_start: Arc<dyn Fn() + Send + Sync>,
    pub(crate) shared: Arc<Shared>,
}

impl Installation {
    /// Reports that something has to be installed. Until then the server is shown as starting.
    pub fn report_started(&self) {
        (self.on_start)();
    }

    /// Forwards a line of installer output, redacted and sanitized.
    pub fn report_output(&self, line: &str) {
        let line = sanitize_line(&self.stdio.redactor.redact(line), MAX_LINE_CHARS);
        let server = Arc::clone(&self.server);
        self.shared.events.emit(|| ManagerEvent::InstallerOutput { server, line: line.into() });
    }

    /// Cancelled when the server is stopped or the installation times out.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Options for processes of this server.
    pub fn stdio(&self) -> &StdioOptions {
        &self.stdio
    }
}

/// The package of a resolved config. The config itself if it has none; boxed because it is large.
pub(crate) fn package_request(
    server: &Arc<str>,
    resolved: ResolvedTransport,
) -> Result<PackageRequest, Box<ResolvedTransport>> {
    let reveal = |values: Vec<Resolved>| values.into_iter().map(Resolved::into_revealed).collect();
    match resolved {
        ResolvedTransport::Package { package, env, cwd, headers } => Ok(PackageRequest {
            server: Arc::clone(server),
            package: Package {
                kind: package.kind,
                identifier: package.identifier.into_revealed(),
                version: package.version,
                args: reveal(package.args),
                program: package.program,
                runtime_hint: package.runtime_hint,
                runtime_args: reveal(package.runtime_args),
            },
            env: reveal_values(env),
            cwd: cwd.map(|cwd| PathBuf::from(cwd.into_revealed())),
            headers: reveal_values(headers),
        }),
        other => Err(Box::new(other)),
    }
}

fn reveal_values(map: HashMap<String, Resolved>) -> HashMap<String, String> {
    map.into_iter().map(|(name, value)| (name, value.into_revealed())).collect()
}

impl fmt::Debug for PackageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackageRequest")
            .field("server", &self.server)
            .field("kind", &self.package.kind)
            .field("version", &self.package.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PreparedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            PreparedServer::Stdio { .. } => "Stdio",
            PreparedServer::Http(_) => "Http",
        };
        f.debug_struct(name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installation").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Connector wrapper that keeps every transport it opens, so that all of them can be closed. Incoming messages and
/// results are redacted.
pub(crate) struct ClosingConnector {
    /// Capacity one: the first report that the server is unreachable. Later ones are dropped.
    pub(crate) unreachable: mpsc::Sender<Failure>,
    pub(crate) inner: Arc<dyn Connector>,
    pub(crate) transports: Arc<Mutex<Vec<Arc<dyn Transport>>>>,
    pub(crate) opening: TaskTracker,
    pub(crate) server: Arc<str>,
    pub(crate) shared: Arc<Shared>,
}

impl ClosingConnector {
    /// Closes all transports, including one that is still opening.
    pub(crate) async fn close(&self) {
        // First the open in flight, whose transport would otherwise be added after `close_all`.
        self.opening.close();
        self.opening.wait().await;
        close_all(&self.transports).await;
    }
}

impl Connector for ClosingConnector {
    fn open(
        &self,
        handler: Arc<dyn IncomingHandler>,
    ) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        let redactor = self.shared.settings.stdio.redactor.clone();
        let handler: Arc<dyn IncomingHandler> = Arc::new(RedactingHandler {
            inner: handler,
            server: Arc::clone(&self.server),
            shared: Arc::clone(&self.shared),
            unreachable: self.unreachable.clone(),
            stderr_limiter: RateLimiter::new(Instant::now()),
        });
        let (inner, transports) = (Arc::clone(&self.inner), Arc::clone(&self.transports));
        let (sender, receiver) = oneshot::channel();
        // A task of its own: a caller that is dropped while the transport opens must not leave a process behind.
        self.opening.spawn(async move {
            // One process at a time: the previous attempt is closed before the next starts.
            close_all(&transports).await;
            let opened = inner.open(handler).await.map(|transport| redacting(transport, &redactor));
            if let Ok(transport) = &opened {
                transports.lock().push(Arc::clone(transport));
            }
            if sender.send(opened).is_err() {
                tracing::debug!("caller of an open is gone; its transport will be closed");
            }
        });
        Box::pin(async move { receiver.await.unwrap_or(Err(TransportError::Shutdown)) })
    }

    fn launcher(&self) -> Option<&str> {
        self.inner.launcher()
    }
}

async fn close_all(transports: &Mutex<Vec<Arc<dyn Transport>>>) {
    // Taken out first: the lock must not be held across an await.
    let transports = std::mem::take(&mut *transports.lock());
    for transport in transports {
        transport.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use toolrack_config::{McpTransport, VariableSource};

    use super::*;

    #[test]
    fn variables_in_headers_are_redacted() {
        let header = |text: &str| ("Authorization".to_owned(), text.to_owned());
        let headers = HashMap::from([header("Bearer ${TOKEN} ${NONE:-a default} ${USER}")]);
        let url = "https://${HOST}/".to_owned();
        let transport = McpTransport::Http { url, headers };
        let config = McpServerConfig { transport, ..McpServerConfig::stdio("s", "x", &[]) };
        let values = |_source: VariableSource, name: &str| match name {
            "TOKEN" => Ok(Some("t0ken-value".to_owned())),
            "HOST" => Ok(Some("host.example".to_owned())),
            "USER" => Ok(Some("alice".to_owned())),
            _ => Ok(None),
        };
        let redactor = Redactor::default();
        register_header_secrets(&interpolate(&config, &values).unwrap(), &redactor);
        let text = "Bearer t0ken-value a default alice at host.example";
        assert_eq!(redactor.redact(text), "Bearer [secret TOKEN] a default alice at host.example");
    }
}
