//! What is told about one call: that it began, and once how it ended.
//!
//! **Invariant:** a call that was begun is ended, also if its caller drops it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use toolrack_mcp::Arguments;
use toolrack_transport::Delivery;
use toolrack_transport::RawJson;

use crate::error::RackError;
use crate::events::{Bulletin, CallOutcome, RackEvent};
use crate::manager::Shared;
use crate::server_snapshot::McpConnection;
use crate::tool_output as output;

/// A call that somebody listens to.
pub(crate) struct Ledger {
    bulletin: Arc<Bulletin>,
    id: u64,
    server: Arc<str>,
    tool: Arc<str>,
    began: Instant,
    argument_bytes: usize,
    /// `None` once it is told.
    ending: Option<Ending>,
}

struct Ending {
    outcome: CallOutcome,
    delivery: Delivery,
    result_bytes: usize,
}

impl Ledger {
    /// Tells that a call begins, if anybody listens.
    pub(crate) fn open(
        shared: &Shared,
        connection: &McpConnection,
        number: Option<u64>,
        tool: &str,
        arguments: Arguments<'_>,
    ) -> Option<Self> {
        if !shared.bulletin.has_listeners() {
            return None;
        }
        let ledger = Self {
            bulletin: Arc::clone(&shared.bulletin),
            id: number.unwrap_or_else(|| shared.n_calls.fetch_add(1, Ordering::Relaxed)),
            server: Arc::clone(&connection.name),
            tool: tool.into(),
            began: Instant::now(),
            argument_bytes: written_bytes(arguments),
            ending: Some(Ending {
                outcome: CallOutcome::Abandoned,
                delivery: Delivery::Unknown,
                result_bytes: 0,
            }),
        };
        ledger.bulletin.tell(|| RackEvent::CallStarted {
            id: ledger.id,
            server: Arc::clone(&ledger.server),
            tool: Arc::clone(&ledger.tool),
        });
        Some(ledger)
    }

    /// Tells how it ended.
    pub(crate) fn close(mut self, outcome: &Result<RawJson, RackError>) {
        self.ending = Some(match outcome {
            Ok(raw) => Ending {
                outcome: if output::is_error(raw) {
                    CallOutcome::ToolError
                } else {
                    CallOutcome::Done
                },
                delivery: Delivery::Answered,
                result_bytes: raw.as_bytes().len(),
            },
            Err(error) => {
                Ending { outcome: CallOutcome::Failed, delivery: error.delivery(), result_bytes: 0 }
            }
        });
    }
}

/// How long arguments are as JSON.
fn written_bytes(arguments: Arguments<'_>) -> usize {
    match arguments {
        Arguments::Raw(raw) => raw.get().len(),
        Arguments::Value(value) => value.to_string().len(),
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let Some(ending) = self.ending.take() else { return };
        self.bulletin.tell(|| RackEvent::CallFinished {
            id: self.id,
            server: Arc::clone(&self.server),
            tool: Arc::clone(&self.tool),
            outcome: ending.outcome,
            delivery: ending.delivery,
            duration: self.began.elapsed(),
            argument_bytes: self.argument_bytes,
            result_bytes: ending.result_bytes,
        });
    }
}
