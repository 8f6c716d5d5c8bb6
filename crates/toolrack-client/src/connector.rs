//! Connectors: open a stdio or HTTP transport to a server.
//!
//! **Invariant:** this file alone knows which kind of transport a client uses; the rest of the crate sees the
//! transport trait.

use std::path::Path;
use std::sync::Arc;

use toolrack_http::{HttpOptions, HttpServerDef, HttpTransport};
use toolrack_stdio::{EnvInheritance, McpServerDef, StdioClientTransport, StdioOptions};
use toolrack_transport::{BoxFuture, IncomingHandler, Transport, TransportError};

use crate::builder::ClientBuilder;
use crate::client::McpClient;
use crate::error::ConnectError;
use crate::timeouts::Timeouts;

/// Opens transports to one server.
///
/// A connection may need two: a legacy server that exits on the probe, or never responds to it, is started
/// again before `initialize`.
pub trait Connector: Send + Sync {
    /// Opens a transport that delivers notifications and server requests to `incoming`.
    ///
    /// # Cancel safety
    /// Dropping the future must leave nothing running.
    fn open(
        &self,
        incoming: Arc<dyn IncomingHandler>,
    ) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>>;

    /// The launcher that installs the server before running it, such as `npx`. Such a server may stay silent for
    /// minutes during the first start.
    fn launcher(&self) -> Option<&str> {
        None
    }
}

/// Programs that may download a server before running it.
const LAUNCHERS: &[&str] =
    &["npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman"];

/// Starts a child process per transport.
#[derive(Debug, Clone)]
pub struct StdioConnector {
    /// Command of the server.
    pub definition: McpServerDef,
    /// Options of the transport.
    pub options: StdioOptions,
}

impl Connector for StdioConnector {
    fn open(
        &self,
        incoming: Arc<dyn IncomingHandler>,
    ) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(async move {
            let options = self.options.clone();
            let transport =
                StdioClientTransport::spawn(&self.definition, options, incoming).await?;
            Ok(Arc::new(transport) as Arc<dyn Transport>)
        })
    }

    fn launcher(&self) -> Option<&str> {
        launcher_name(&self.definition.command)
    }
}

/// Returns the launcher behind `command`, such as `npx`, or `None` if `command` is no launcher.
pub fn launcher_name(command: &str) -> Option<&str> {
    // The stem, because Windows has `npx.cmd` and `uvx.exe`.
    let program = Path::new(command).file_stem()?.to_str()?;
    LAUNCHERS.contains(&program).then_some(program)
}

/// Opens an HTTP transport.
#[derive(Debug, Clone)]
pub struct HttpConnector {
    /// URL of the server.
    pub definition: HttpServerDef,
    /// Options of the transport.
    pub options: HttpOptions,
}

impl Connector for HttpConnector {
    fn open(
        &self,
        incoming: Arc<dyn IncomingHandler>,
    ) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(async move {
            let transport =
                HttpTransport::open(&self.definition, self.options.clone(), incoming).await?;
            Ok(Arc::new(transport) as Arc<dyn Transport>)
        })
    }
}

impl McpClient {
    /// Starts a server as a child process and connects to it.
    ///
    /// The server inherits the whole environment, as with [`std::process::Command`], and `initialize` and the first
    /// `tools/list` may take as long as a call. [`builder`](Self::builder) has stricter defaults.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server process.
    pub async fn connect(name: &str, command: &str, args: &[String]) -> Result<Self, ConnectError> {
        let command = command.to_owned();
        let definition = McpServerDef { command, args: args.to_vec(), ..McpServerDef::default() };
        let options = StdioOptions { inherit_env: EnvInheritance::All, ..StdioOptions::default() };
        let timeouts = Timeouts::default();
        let timeouts = Timeouts { startup: timeouts.call * 2, ..timeouts };
        Self::builder(name).timeouts(timeouts).connect_stdio(definition, options).await
    }
}

impl ClientBuilder {
    /// Starts a server as a child process and connects to it.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server process.
    pub async fn connect_stdio(
        self,
        definition: McpServerDef,
        options: StdioOptions,
    ) -> Result<McpClient, ConnectError> {
        self.connect_with(Arc::new(StdioConnector { definition, options })).await
    }

    /// Connects to a server over HTTP: Streamable HTTP or HTTP+SSE, either era.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transport and closes its connections.
    pub async fn connect_http(
        self,
        definition: HttpServerDef,
        options: HttpOptions,
    ) -> Result<McpClient, ConnectError> {
        self.connect_with(Arc::new(HttpConnector { definition, options })).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: Option<&str>) {
        assert_eq!(launcher_name(command), expected);
        let command = command.to_owned();
        let definition = McpServerDef { command, ..McpServerDef::default() };
        let connector = StdioConnector { definition, options: StdioOptions::default() };
        assert_eq!(connector.launcher(), expected);
    }

    #[test]
    fn launchers_are_recognized_by_name() {
        check("npx", Some("npx"));
        check("/usr/local/bin/uvx", Some("uvx"));
        check("npx.cmd", Some("npx"));
        check("my-npx-server", None);
        check("/opt/npx/server", None);
        check("", None);
    }
}
