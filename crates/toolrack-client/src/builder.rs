//! Client builder: every option of a connection, set before it is made.

use std::fmt;
use std::sync::Arc;

use toolrack_mcp::{ClientCapabilities, Implementation, Revision};

use crate::connect::{ConnectStep, OnConnectStep};
use crate::server_requests::ClientHandler;
use crate::timeouts::{Limits, Timeouts};
use crate::version_detection::EraChoice;

/// Options of a connection. Made by [`McpClient::builder`](crate::McpClient::builder).
#[derive(Clone, Default)]
#[must_use = "does nothing until it connects"]
pub struct ClientBuilder {
    pub(crate) name: Box<str>,
    pub(crate) client: Implementation,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) era: EraChoice,
    pub(crate) known_version: Option<Revision>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) on_step: Option<OnConnectStep>,
}

impl ClientBuilder {
    pub(crate) fn new(name: &str) -> Self {
        let client = Implementation {
            name: "toolrack".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        };
        Self { name: name.into(), client, ..Self::default() }
    }

    /// Sets the client info sent to the server. Defaults to Toolrack.
    pub fn client(mut self, client: Implementation) -> Self {
        self.client = client;
        self
    }

    /// Sets the timeouts.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets which protocol eras to try.
    pub fn era(mut self, era: EraChoice) -> Self {
        self.era = era;
        self
    }

    /// Passes the [`McpClient::revision`](crate::McpClient::revision) of an earlier connection, which saves the probe.
    pub fn known_version(mut self, version: Option<Revision>) -> Self {
        self.known_version = version;
        self
    }

    /// Sets the handler for server requests. Without one, no client capabilities are declared.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        // Read once, so that every check compares with the capabilities that the server was told.
        self.capabilities = handler.capabilities();
        self.handler = Some(handler);
        self
    }

    /// Sets a callback for connect progress. A step may be reported twice: a server that exits on the probe is
    /// started again.
    pub fn on_step(mut self, on_step: OnConnectStep) -> Self {
        self.on_step = Some(on_step);
        self
    }

    pub(crate) fn report_step(&self, step: ConnectStep) {
        if let Some(on_step) = &self.on_step {
            on_step(step);
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").finish_non_exhaustive()
    }
}
