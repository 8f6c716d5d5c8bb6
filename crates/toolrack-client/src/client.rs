//! One server, typed: the handle that programs hold.
//!
//! **Invariant:** when `close` returns, the line and every task of the connection have ended. Dropping
//! the client ends them too, without waiting.

use std::sync::Arc;

use tokio::time::timeout;
use toolrack_mcp::{Era, Implementation, Revision, ServerCapabilities, Tool};
use toolrack_transport::{Diagnosis, Ending};

use crate::builder::ClientBuilder;
use crate::event::Events;
use crate::pagination::Listing;
use crate::session::Session;
use crate::task_polling::FAREWELL;
use crate::tool::McpToolDef;
use crate::version_detection::Verdict;

/// A connection to one MCP server, of whatever era.
///
/// The runtime in which it is connected has to run for as long as it is used. When that is dropped the connection ends,
/// and calls fail.
#[derive(Debug)]
pub struct McpClient {
    session: Arc<Session>,
}

impl McpClient {
    /// Begins a connection to a server that will be called `name` in spans, questions and errors.
    pub fn builder(name: &str) -> ClientBuilder {
        ClientBuilder::new(name)
    }

    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What we call the server.
    pub fn name(&self) -> &str {
        &self.session.respondent.server
    }

    /// What the server calls itself. For display only.
    pub fn server_info(&self) -> Option<&Implementation> {
        self.session.card.server.as_ref()
    }

    /// What the server offers.
    pub fn capabilities(&self) -> &ServerCapabilities {
        &self.session.card.capabilities
    }

    /// How to use the server, for a model to read.
    pub fn instructions(&self) -> Option<&str> {
        self.session.card.instructions.as_deref()
    }

    /// What was agreed.
    pub fn revision(&self) -> Revision {
        self.session.revision()
    }

    /// The era of the server.
    pub fn era(&self) -> Era {
        self.session.era()
    }

    /// What to remember about the server, for [`ClientBuilder::remembered`].
    pub fn verdict(&self) -> Verdict {
        Verdict::new(self.revision())
    }

    /// What has been odd on the line so far.
    pub fn diagnosis(&self) -> Diagnosis {
        self.session.line.diagnosis()
    }

    /// How many requests of the server were left without an answer, because its era does not have them or
    /// because there were too many.
    pub fn n_ignored_requests(&self) -> u64 {
        self.session.mailbox.ignored()
    }

    /// The tools as they were fetched last. Changes that the server tells are fetched by themselves.
    pub fn tools(&self) -> Arc<Listing<Tool>> {
        self.session.kept()
    }

    /// The tools in their plainest form.
    pub fn tool_defs(&self) -> Vec<McpToolDef> {
        self.tools().items.iter().map(McpToolDef::from).collect()
    }

    /// Everything that happens from now on.
    pub fn subscribe(&self) -> Events {
        self.session.mailbox.bulletin.listen()
    }

    /// How the line ended, if it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.session.mailbox.bulletin.ending()
    }

    /// Ends the connection and the server behind it, and says how it ended. Calls that are open fail.
    ///
    /// # Cancel safety
    /// Once called, the connection ends even if the future is dropped.
    pub async fn close(&self) -> Ending {
        self.session.farewells.close();
        drop(timeout(FAREWELL, self.session.farewells.wait()).await);
        self.session.stop.cancel();
        self.session.tracker.close();
        let ending = self.session.line.close().await;
        self.session.tracker.wait().await;
        ending
    }

    /// Like [`close`](Self::close), for the last holder.
    pub async fn shutdown(self) {
        let ending = self.close().await;
        tracing::debug!(server = self.name(), %ending, "connection closed");
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.session.stop.cancel();
    }
}
