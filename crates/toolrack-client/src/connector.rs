//! How a client gets its transport, without knowing what kind of transport it is.
//!
//! Servers that are child processes: the one place that knows what kind of transport there is.
//!
//! Servers that are reached over HTTP.

use std::path::Path;
use std::sync::Arc;

use toolrack_http::{HttpLine, HttpOptions, HttpServerDef};
use toolrack_stdio::{McpServerDef, StdioLine, StdioOptions};
use toolrack_transport::{BoxFuture, Inbox, Line, TransportError};

use crate::builder::ClientBuilder;
use crate::client::McpClient;
use crate::error::ConnectError;

/// Opens lines to one server.
///
/// A connection may need two: a legacy server that died of the first question, or never answered it, is
/// started again before it is greeted.
pub trait Connector: Send + Sync {
    /// Opens a transport whose unasked messages go to `inbox`.
    ///
    /// # Cancel safety
    /// Dropping the future must leave nothing running.
    fn open(
        &self,
        incoming: Arc<dyn Inbox>,
    ) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>>;

    /// What is at the other end, for people.
    fn description(&self) -> String;

    /// The program that fetches the server before it runs it, such as `npx`. Such a server may be silent
    /// for a long time and still be well.
    fn launcher(&self) -> Option<&str> {
        None
    }
}

/// Programs that fetch a server before they run it.
const LAUNCHERS: &[&str] =
    &["npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman"];

/// Starts a process for each transport.
#[derive(Debug, Clone)]
pub struct StdioConnector {
    definition: McpServerDef,
    options: StdioOptions,
}

impl StdioConnector {
    /// A connector for the server that `definition` describes.
    pub fn new(definition: McpServerDef, options: StdioOptions) -> Self {
        Self { definition, options }
    }
}

impl Connector for StdioConnector {
    fn open(
        &self,
        incoming: Arc<dyn Inbox>,
    ) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>> {
        Box::pin(async move {
            let transport =
                StdioLine::open(&self.definition, self.options.clone(), incoming).await?;
            Ok(Arc::new(transport) as Arc<dyn Line>)
        })
    }

    fn description(&self) -> String {
        let words = std::iter::once(&self.definition.command).chain(&self.definition.args);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    fn launcher(&self) -> Option<&str> {
        launcher_name(&self.definition.command)
    }
}

/// The program behind `command`, if it is one that fetches a server before it runs it, such as `npx`.
pub fn launcher_name(command: &str) -> Option<&str> {
    let program = Path::new(command).file_stem()?.to_str()?;
    LAUNCHERS.contains(&program).then_some(program)
}

/// Opens a transport over HTTP.
#[derive(Debug, Clone)]
pub struct HttpConnector {
    definition: HttpServerDef,
    options: HttpOptions,
}

impl HttpConnector {
    /// A connector for the server that `definition` describes.
    pub fn new(definition: HttpServerDef, options: HttpOptions) -> Self {
        Self { definition, options }
    }
}

impl Connector for HttpConnector {
    fn open(
        &self,
        incoming: Arc<dyn Inbox>,
    ) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>> {
        Box::pin(async move {
            let transport =
                HttpLine::open(&self.definition, self.options.clone(), incoming).await?;
            Ok(Arc::new(transport) as Arc<dyn Line>)
        })
    }

    /// Queries may hold keys.
    fn description(&self) -> String {
        self.definition.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}

impl McpClient {
    /// Starts a server, agrees on a revision with it, and fetches its tools. Everything else is as
    /// [`builder`](Self::builder) has it.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever was started.
    pub async fn connect(name: &str, command: &str, args: &[String]) -> Result<Self, ConnectError> {
        let command = command.to_owned();
        let definition = McpServerDef { command, args: args.to_vec(), ..McpServerDef::default() };
        Self::builder(name).connect_stdio(definition, StdioOptions::default()).await
    }
}

impl ClientBuilder {
    /// Connects to a server that is a child process.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever was started.
    pub async fn connect_stdio(
        self,
        definition: McpServerDef,
        options: StdioOptions,
    ) -> Result<McpClient, ConnectError> {
        self.connect_with(Arc::new(StdioConnector::new(definition, options))).await
    }

    /// Connects to a server over HTTP, of whichever era and shape it is.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transport and closes its connections.
    pub async fn connect_http(
        self,
        definition: HttpServerDef,
        options: HttpOptions,
    ) -> Result<McpClient, ConnectError> {
        self.connect_with(Arc::new(HttpConnector::new(definition, options))).await
    }
}

#[cfg(test)]
mod stdio_tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: Option<&str>) {
        assert_eq!(launcher_name(command), expected);
        let command = command.to_owned();
        let definition = McpServerDef { command, ..McpServerDef::default() };
        let connector = StdioConnector::new(definition, StdioOptions::default());
        assert_eq!(connector.launcher(), expected);
    }

    #[test]
    fn launchers_are_known_by_name() {
        check("npx", Some("npx"));
        check("/usr/local/bin/uvx", Some("uvx"));
        check("npx.cmd", Some("npx"));
        check("my-npx-server", None);
        check("/opt/npx/server", None);
        check("", None);
    }

    #[test]
    fn a_command_is_described_as_it_is_typed() {
        let definition = McpServerDef {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "server".to_owned()],
            ..McpServerDef::default()
        };
        let connector = StdioConnector::new(definition, StdioOptions::default());
        assert_eq!(connector.description(), "npx -y server");
    }
}

#[cfg(test)]
mod http_tests {
    use super::*;

    #[test]
    fn an_address_is_described_without_its_query() {
        let definition = HttpServerDef::new("https://host/mcp?key=s3cret");
        let connector = HttpConnector::new(definition, HttpOptions::default());
        assert_eq!(connector.description(), "https://host/mcp");
    }
}
