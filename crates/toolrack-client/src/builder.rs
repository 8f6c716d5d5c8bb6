//! How a connection is set up before it is made.

use std::fmt;
use std::sync::Arc;

use toolrack_mcp::{ClientCapabilities, Implementation};

use crate::client::McpClient;
use crate::connect;
use crate::connect::{ConnectStep, StepWatcher};
use crate::connector::Connector;
use crate::error::ConnectError;
use crate::server_requests::ClientHandler;
use crate::timeouts::{Limits, Timeouts};
use crate::version_detection::{EraChoice, Verdict};

/// Everything that can be set about a connection. Made by [`McpClient::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it connects"]
pub struct ClientBuilder {
    pub(crate) plan: Plan,
}

/// What a connection is to be like.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) name: Box<str>,
    pub(crate) client: Implementation,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) era: EraChoice,
    pub(crate) remembered: Option<Verdict>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) changes: Changes,
    pub(crate) watcher: Option<StepWatcher>,
}

/// Whether a modern server is asked to tell when its lists change. Legacy servers tell unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Changes {
    /// It is asked, if it says that it can tell.
    #[default]
    Follow,
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
            plan: Plan {
                name: name.into(),
                client,
                capabilities: ClientCapabilities::default(),
                timeouts: Timeouts::default(),
                limits: Limits::default(),
                era: EraChoice::default(),
                remembered: None,
                handler: None,
                changes: Changes::default(),
                watcher: None,
            },
        }
    }

    /// Who we say we are. Toolrack itself, unless set.
    pub fn client(mut self, client: Implementation) -> Self {
        self.plan.client = client;
        self
    }

    /// How long things may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.plan.timeouts = timeouts;
        self
    }

    /// How much is taken from the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// Which eras may be tried.
    pub fn era(mut self, era: EraChoice) -> Self {
        self.plan.era = era;
        self
    }

    /// What [`McpClient::verdict`] said last time, which saves the question.
    pub fn remembered(mut self, verdict: Option<Verdict>) -> Self {
        self.plan.remembered = verdict;
        self
    }

    /// Who answers what the server asks. Without one, nothing is offered to the server.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.plan.capabilities = handler.capabilities();
        self.plan.handler = Some(handler);
        self
    }

    /// Whether changes of lists are followed.
    pub fn changes(mut self, changes: Changes) -> Self {
        self.plan.changes = changes;
        self
    }

    /// Who is told how far connecting has come. A step may come twice: a server that died of the first
    /// question is started again.
    pub fn watcher(mut self, watcher: StepWatcher) -> Self {
        self.plan.watcher = Some(watcher);
        self
    }

    /// Opens a line, agrees on a revision, and fetches the tools. The attempt as a whole gets the time of
    /// [`Timeouts::startup`]; after a failure the line is closed first, which takes the time it takes.
    ///
    /// # Cancel safety
    /// Dropping the future drops the line, and with it whatever was started.
    pub async fn connect_with(
        self,
        connector: Arc<dyn Connector>,
    ) -> Result<McpClient, ConnectError> {
        connect::connect(self.plan, connector).await
    }
}

impl Plan {
    pub(crate) fn tell(&self, step: ConnectStep) {
        if let Some(watcher) = &self.watcher {
            watcher(step);
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("name", &self.name)
            .field("era", &self.era)
            .field("remembered", &self.remembered)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
