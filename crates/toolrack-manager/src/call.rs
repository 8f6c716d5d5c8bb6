//! Calls: from a name to a server that is ready, and once more if that is harmless.
//!
//! **Invariant:** every call has one outcome, and a call that may have reached its server is sent again only if
//! the config says that repeating is harmless.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serde_json::value::RawValue;
use tracing::Instrument as _;

use toolrack_client::{CallError, CallOptions, McpToolResult};
use toolrack_mcp::{Arguments, DecodeError, ToolCallResult};
use toolrack_transport::RawJson;
use toolrack_transport::TransportError;

use crate::call_events::Ledger;
use crate::error::RackError;
use crate::glob;
use crate::lifecycle::event::Epoch;
use crate::manager::{McpManager, Shared};
use crate::retry_policy::{Repeatable, again};
use crate::server_snapshot::McpConnection;
use crate::snapshot::{Snapshot, Target, nearest};
use crate::telemetry;
use crate::tool_output as output;
use crate::tool_refresh::Unheard;

/// Which tool a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called<'a> {
    /// By its public name, or as `server.tool` or `server/tool`.
    Public(&'a str),
    /// A tool of a server, under the name that the server gives.
    Of {
        /// Which server.
        server: &'a str,
        /// Which of its tools.
        tool: &'a str,
    },
}

/// One call on its way.
struct Errand<'a> {
    /// The number it was promised, if somebody asked for one.
    number: Option<u64>,
    tool: &'a str,
    arguments: Arguments<'a>,
    options: Option<&'a CallOptions>,
}

/// Why an attempt was not the outcome of its call.
struct Setback {
    /// The launch that was tried. Its end may not be known everywhere yet.
    avoid: Option<Epoch>,
    /// Why the call failed, if it was sent at all.
    error: Option<RackError>,
}

impl McpManager {
    /// Calls a tool by its public name, or as `server.tool` or `server/tool`, and gives its text: joined,
    /// cleaned, and cut at the server's `max_output_bytes`.
    ///
    /// A server that is started by its first call is started, and one that is being connected is waited for.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call(&self, name: &str, arguments: &Value) -> Result<McpToolResult, RackError> {
        let snapshot = match self.look(Called::Public(name)) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let Target { connection, tool } = self.shared.resolve(&snapshot, name)?;
        self.shared.call_text(connection, tool, arguments).await
    }

    /// Calls a tool of a server under the name that the server gives. Otherwise as [`call`](Self::call).
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, RackError> {
        let snapshot = match self.look(Called::Of { server, tool }) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let connection = self.shared.find(&snapshot, server)?;
        self.shared.call_text(connection, tool, arguments).await
    }

    /// Calls a tool by its public name and gives the result as the server wrote it: neither decoded, nor
    /// cleaned, nor cut.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_raw(
        &self,
        name: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, RackError> {
        let snapshot = match self.look(Called::Public(name)) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let Target { connection, tool } = self.shared.resolve(&snapshot, name)?;
        let arguments = Arguments::Raw(arguments);
        let errand = Errand { number: None, tool, arguments, options: Some(options) };
        self.shared.run(connection, &errand).await
    }

    /// Calls a tool by its public name and gives everything that it answered: decoded, neither cleaned nor cut.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_full(
        &self,
        name: &str,
        arguments: &Value,
        options: &CallOptions,
    ) -> Result<ToolCallResult<'static>, RackError> {
        let snapshot = match self.look(Called::Public(name)) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let Target { connection, tool } = self.shared.resolve(&snapshot, name)?;
        let arguments = Arguments::Value(arguments);
        let errand = Errand { number: None, tool, arguments, options: Some(options) };
        let raw = self.shared.run(connection, &errand).await?;
        let read = ToolCallResult::parse(raw.as_bytes()).map(ToolCallResult::into_owned);
        read.map_err(|source| undecodable(connection, tool, source))
    }

    /// The same as [`call_raw`](Self::call_raw) for a tool of a server under the name that the server gives.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool_raw(
        &self,
        server: &str,
        tool: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, RackError> {
        let snapshot = match self.look(Called::Of { server, tool }) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let arguments = Arguments::Raw(arguments);
        let errand = Errand { number: None, tool, arguments, options: Some(options) };
        let connection = self.shared.find(&snapshot, server)?;
        self.shared.run(connection, &errand).await
    }

    /// A number for a call that is still to be made, by which events will tell it apart.
    pub fn reserve_call(&self) -> u64 {
        self.shared.n_calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a call under a number from [`reserve_call`](Self::reserve_call). Otherwise as
    /// [`call_raw`](Self::call_raw).
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_reserved(
        &self,
        number: u64,
        called: Called<'_>,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, RackError> {
        let snapshot = match self.look(called) {
            Ok(snapshot) => snapshot,
            Err(Unheard) => Box::pin(self.look_again()).await,
        };
        let (connection, tool) = match called {
            Called::Public(name) => {
                let Target { connection, tool } = self.shared.resolve(&snapshot, name)?;
                (connection, tool)
            }
            Called::Of { server, tool } => (self.shared.find(&snapshot, server)?, tool),
        };
        let arguments = Arguments::Raw(arguments);
        let errand = Errand { number: Some(number), tool, arguments, options: Some(options) };
        self.shared.run(connection, &errand).await
    }
}

impl Shared {
    fn resolve<'a>(&self, snapshot: &'a Snapshot, name: &'a str) -> Result<Target<'a>, RackError> {
        snapshot.resolve(name).map_err(|refusal| self.refusal(refusal))
    }

    fn find<'a>(
        &self,
        snapshot: &'a Snapshot,
        server: &str,
    ) -> Result<&'a Arc<McpConnection>, RackError> {
        snapshot.server(server).map_err(|refusal| self.refusal(refusal))
    }

    async fn call_text(
        &self,
        connection: &Arc<McpConnection>,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, RackError> {
        let arguments = Arguments::Value(arguments);
        let errand = Errand { number: None, tool, arguments, options: None };
        let raw = self.run(connection, &errand).await?;
        output::read(&raw, connection.config.max_output_bytes)
            .map_err(|source| undecodable(connection, tool, source))
    }

    /// Carries a call out.
    async fn run(
        &self,
        connection: &McpConnection,
        errand: &Errand<'_>,
    ) -> Result<RawJson, RackError> {
        if telemetry::is_wanted() || self.bulletin.has_listeners() {
            // Boxed like everything that not every call needs, so that a call stays small.
            return Box::pin(self.tell(connection, errand)).await;
        }
        self.deliver(connection, errand).await
    }

    /// Carries a call out, with everything that is told about it.
    async fn tell(
        &self,
        connection: &McpConnection,
        errand: &Errand<'_>,
    ) -> Result<RawJson, RackError> {
        let span = telemetry::span(connection, errand.tool);
        let ledger = Ledger::open(self, connection, errand.number, errand.tool, errand.arguments);
        let outcome = self.deliver(connection, errand).instrument(span.clone()).await;
        telemetry::finish(&span, &outcome);
        if let Some(ledger) = ledger {
            ledger.close(&outcome);
        }
        outcome
    }

    async fn deliver(
        &self,
        connection: &McpConnection,
        errand: &Errand<'_>,
    ) -> Result<RawJson, RackError> {
        match errand.attempt(connection, None, 1).await {
            Ok(outcome) => outcome,
            Err(setback) => Box::pin(self.persist(connection, errand, setback)).await,
        }
    }

    /// Waits for the server and tries again, until the call has its outcome.
    async fn persist(
        &self,
        connection: &McpConnection,
        errand: &Errand<'_>,
        mut setback: Setback,
    ) -> Result<RawJson, RackError> {
        let waits = self.waits(connection);
        let mut n_sent = u32::from(setback.error.is_some());
        loop {
            let renewed = match self.ready(&connection.name, setback.avoid, waits).await {
                Ok(renewed) => renewed,
                // Why the call failed before says more than that there is no second try.
                Err(refusal) => return Err(setback.error.unwrap_or(refusal)),
            };
            match errand.attempt(&renewed, setback.avoid, n_sent + 1).await {
                Ok(outcome) => return outcome,
                Err(next) => {
                    n_sent += u32::from(next.error.is_some());
                    setback = Setback { avoid: next.avoid, error: next.error.or(setback.error) };
                }
            }
        }
    }
}

fn undecodable(connection: &McpConnection, tool: &str, source: DecodeError) -> RackError {
    let (server, tool) = (connection.name().to_owned(), tool.to_owned());
    RackError::Undecodable { server, tool, source }
}

/// Whether a failure means that the line has ended, so that there will be another one. A line over HTTP fails
/// single requests, and has then tried what there is to try.
fn ends_line(error: &CallError) -> bool {
    let CallError::Line(failure) = error else { return false };
    matches!(
        failure.error,
        TransportError::Shutdown
            | TransportError::ProcessExited(_)
            | TransportError::StdinNotAvailable
            | TransportError::StdoutNotAvailable
    )
}

impl Errand<'_> {
    /// Whether the tool may be called, and exists as far as can be known.
    fn check(&self, connection: &McpConnection) -> Result<(), RackError> {
        let toolset = &connection.toolset;
        if toolset.has(self.tool) {
            return Ok(());
        }
        if let Some(rule) = connection.denial(self.tool) {
            let (server, tool) = (connection.name().to_owned(), self.tool.to_owned());
            return Err(RackError::Denied { server, tool, rule });
        }
        // What is remembered may be out of date; what a connection says is not.
        if connection.link.is_none() || toolset.listing().is_none() {
            return Ok(());
        }
        Err(RackError::NoSuchTool {
            tool: format!("{}.{}", connection.name(), self.tool),
            nearest: nearest(self.tool, toolset.open().map(|(_, tool)| tool.name.as_str())),
        })
    }

    /// Sends the call, unless the server does not take it now or is the launch to `avoid`.
    async fn attempt(
        &self,
        connection: &McpConnection,
        avoid: Option<Epoch>,
        number: u32,
    ) -> Result<Result<RawJson, RackError>, Setback> {
        if let Err(refusal) = self.check(connection) {
            return Ok(Err(refusal));
        }
        let Some(link) = connection.link.as_ref().filter(|link| avoid != Some(link.epoch)) else {
            return Err(Setback { avoid, error: None });
        };
        let avoid = Some(link.epoch);
        // A connection that is about to be ended lets nobody in, and the call goes to the next one.
        let Some(_visit) = link.usage.enter() else { return Err(Setback { avoid, error: None }) };
        // The config may have changed since the connection was made.
        let mut options = self.options.cloned().unwrap_or_default();
        options.timeout.get_or_insert(connection.config.timeout);
        options.at_most.get_or_insert(connection.config.max_timeout);
        match link.client.call_tool_as(self.tool, self.arguments, &options).await {
            Ok(result) => Ok(Ok(result)),
            Err(error) if self.is_over(connection, &error, number) => {
                Ok(Err(self.failed(connection, error)))
            }
            Err(error) => Err(Setback { avoid, error: Some(self.failed(connection, error)) }),
        }
    }

    /// Whether a failure is the outcome. Only what failed with its line is worth another try.
    fn is_over(&self, connection: &McpConnection, error: &CallError, n_attempts: u32) -> bool {
        let patterns = &connection.config.repeatable;
        let is_harmless = patterns.iter().any(|pattern| glob::matches(pattern, self.tool));
        let repeatable = if is_harmless { Repeatable::Yes } else { Repeatable::No };
        !ends_line(error) || !again(error.delivery(), repeatable, n_attempts)
    }

    fn failed(&self, connection: &McpConnection, source: CallError) -> RackError {
        let (server, tool) = (connection.name().to_owned(), self.tool.to_owned());
        RackError::Call { server, tool, source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand calls in flight should fit into the nearest caches.
    #[tokio::test]
    async fn a_call_in_flight_is_small() {
        let manager = McpManager::new(Vec::new());
        let arguments = Value::Null;
        assert!(size_of_val(&manager.call("name", &arguments)) <= 1408);
        assert!(size_of_val(&manager.call_tool("server", "tool", &arguments)) <= 1408);
    }
}
