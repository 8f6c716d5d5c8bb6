//! One server as it stands: a picture that does not change, taken by the actor.

use std::sync::Arc;

use tokio::time::Instant;
use toolrack_client::{Listing, McpClient};
use toolrack_config::McpServerConfig;
use toolrack_mcp::Tool;

use crate::connection_state::{ConnectPhase, ConnectionState};
use crate::in_flight::Usage;
use crate::lifecycle::event::Epoch;
use crate::retry_policy::Standing;
use crate::server_tools::Toolset;
use crate::tool_filter::{Filter, Rule};
use crate::tool_refresh::Asked;

/// One server as it stood when it was asked for. Ask again for news.
#[derive(Debug)]
pub struct McpConnection {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) state: ConnectionState,
    pub(crate) phase: Option<ConnectPhase>,
    pub(crate) standing: Standing,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) is_crash_looping: bool,
    /// The launch that may still have processes.
    pub(crate) launch: Option<Epoch>,
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) toolset: Arc<Toolset>,
    pub(crate) filter: Arc<Filter>,
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: McpClient,
    pub(crate) usage: Usage,
    pub(crate) epoch: Epoch,
    pub(crate) asked: Asked,
}

impl McpConnection {
    /// What the server is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The config it runs under.
    pub fn config(&self) -> &McpServerConfig {
        &self.config
    }

    /// Where it stands.
    pub fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// How far it has come, while it is being connected.
    pub fn phase(&self) -> Option<ConnectPhase> {
        self.phase
    }

    /// Whether it takes calls.
    pub fn is_connected(&self) -> bool {
        self.state == ConnectionState::Connected
    }

    /// When it is tried again by itself, if that is planned.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether it is started again and again: five times within a minute, and not well for two minutes since.
    pub fn is_crash_looping(&self) -> bool {
        self.is_crash_looping
    }

    /// Which launch this is, counted from one. `None` if nothing runs.
    pub fn launch(&self) -> Option<u64> {
        self.launch.map(|epoch| epoch.0)
    }

    /// The open connection, for everything that is not a call of a tool.
    pub fn client(&self) -> Option<&McpClient> {
        self.link.as_ref().map(|link| &link.client)
    }

    /// All tools that the server has, denied ones too. `None` if they were never seen.
    pub fn listing(&self) -> Option<&Arc<Listing<Tool>>> {
        self.toolset.listing()
    }

    /// How many tools are let through.
    pub fn n_tools(&self) -> usize {
        self.toolset.n_open()
    }

    /// Their names, as the server gives them.
    pub fn tool_names(&self) -> Vec<String> {
        self.toolset.open().map(|(_, tool)| tool.name.clone()).collect()
    }

    /// Patterns of `allow` and `deny` that match no tool of the server.
    pub fn unused_patterns(&self) -> &[String] {
        self.toolset.unused_patterns()
    }

    /// Whether its tools are offered: it may run and is to, even if it does not at the moment.
    pub(crate) fn is_listed(&self) -> bool {
        !matches!(self.standing, Standing::Stopped | Standing::Disabled)
    }

    /// The rule that keeps a tool out. Tools that the server does not list are judged too.
    pub fn denial(&self, tool: &str) -> Option<Rule> {
        if self.toolset.has(tool) {
            return None;
        }
        self.toolset.denial(tool).cloned().or_else(|| self.filter.verdict(tool))
    }
}
