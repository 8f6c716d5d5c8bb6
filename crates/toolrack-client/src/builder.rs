//! How a connection is set up before it is made.

use std::fmt;
use std::sync::Arc;

use toolrack_mcp::{ClientCapabilities, Implementation};

use crate::client::McpClient;
use crate::connect;
use crate::connect::{ConnectStep, OnConnectStep};
use crate::connector::Connector;
use crate::error::ConnectError;
use crate::server_requests::ClientHandler;
use crate::timeouts::{Limits, Timeouts};
use crate::version_detection::{DetectedVersion, EraChoice};

/// Everything that can be set about a connection. Made by [`McpClient::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it connects"]
pub struct ClientBuilder {
    pub(crate) options: ConnectOptions,
}

/// What a connection is to be like.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    pub(crate) name: Box<str>,
    pub(crate) client: Implementation,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) era: EraChoice,
    pub(crate) known_version: Option<DetectedVersion>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) list_changes: ListChanges,
    pub(crate) on_step: Option<OnConnectStep>,
}

/// Whether a modern server is asked to tell when its lists change. Legacy servers tell unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListChanges {
    /// It is asked, if it says that it can tell.
    #[default]
    Subscribe,
    /// It is not, for a connection that is over soon.
    Ignore,
}

impl ClientBuilder {
    pub(crate) fn new(name: &str) -> Self {
        let client = Implementation {
            name: "toolrack".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        };
        Self {
            options: ConnectOptions {
                name: name.into(),
                client,
                capabilities: ClientCapabilities::default(),
                timeouts: Timeouts::default(),
                limits: Limits::default(),
                era: EraChoice::default(),
                known_version: None,
                handler: None,
                list_changes: ListChanges::default(),
                on_step: None,
            },
        }
    }

    /// Who we say we are. Toolrack itself, unless set.
    pub fn client(mut self, client: Implementation) -> Self {
        self.options.client = client;
        self
    }

    /// How long things may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.options.timeouts = timeouts;
        self
    }

    /// How much is taken from the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Which eras may be tried.
    pub fn era(mut self, era: EraChoice) -> Self {
        self.options.era = era;
        self
    }

    /// What [`McpClient::verdict`] said last time, which saves the question.
    pub fn known_version(mut self, version: Option<DetectedVersion>) -> Self {
        self.options.known_version = version;
        self
    }

    /// Who answers what the server asks. Without one, nothing is offered to the server.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.options.capabilities = handler.capabilities();
        self.options.handler = Some(handler);
        self
    }

    /// Whether changes of lists are followed.
    pub fn list_changes(mut self, list_changes: ListChanges) -> Self {
        self.options.list_changes = list_changes;
        self
    }

    /// Who is told how far connecting has come. A step may come twice: a server that died of the first
    /// question is started again.
    pub fn on_step(mut self, on_step: OnConnectStep) -> Self {
        self.options.on_step = Some(on_step);
        self
    }

    /// Opens a transport, agrees on a revision, and fetches the tools. The attempt as a whole gets the time of
    /// [`Timeouts::startup`]; after a failure the transport is closed first, which takes the time it takes.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transport, and with it whatever was started.
    pub async fn connect_with(
        self,
        connector: Arc<dyn Connector>,
    ) -> Result<McpClient, ConnectError> {
        connect::connect(self.options, connector).await
    }
}

impl ConnectOptions {
    pub(crate) fn report_step(&self, step: ConnectStep) {
        if let Some(on_step) = &self.on_step {
            on_step(step);
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("name", &self.name)
            .field("era", &self.era)
            .field("known_version", &self.known_version)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
