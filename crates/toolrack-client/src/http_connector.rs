//! Servers that are reached over HTTP.

use std::sync::Arc;

use toolrack_http::{HttpLine, HttpOptions, HttpServerDef};
use toolrack_transport::{BoxFuture, Inbox, Line, TransportError};

use crate::builder::ClientBuilder;
use crate::client::McpClient;
use crate::connect_error::ConnectError;
use crate::connector::Connector;

/// Opens a line over HTTP.
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
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>> {
        Box::pin(async move {
            let line = HttpLine::open(&self.definition, self.options.clone(), inbox).await?;
            Ok(Arc::new(line) as Arc<dyn Line>)
        })
    }

    /// Queries may hold keys.
    fn description(&self) -> String {
        self.definition.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}

impl ClientBuilder {
    /// Connects to a server over HTTP, of whichever era and shape it is.
    ///
    /// # Cancel safety
    /// Dropping the future drops the line and closes its connections.
    pub async fn connect_http(
        self,
        definition: HttpServerDef,
        options: HttpOptions,
    ) -> Result<McpClient, ConnectError> {
        self.connect_with(Arc::new(HttpConnector::new(definition, options))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_described_without_its_query() {
        let definition = HttpServerDef::new("https://host/mcp?key=s3cret");
        let connector = HttpConnector::new(definition, HttpOptions::default());
        assert_eq!(connector.description(), "https://host/mcp");
    }
}
