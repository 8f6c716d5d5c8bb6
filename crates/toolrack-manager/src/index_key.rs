//! What the index of all tools was built from, to see whether it has to be built anew.

use std::sync::Arc;

use crate::server_snapshot::McpConnection;
use crate::server_tools::Toolset;

/// What the index knows of one server. Two are equal if they are the very same lists.
#[derive(Debug)]
pub(crate) struct Indexed {
    /// What is offered: nothing, if the server was stopped.
    pub(crate) offered: Arc<Toolset>,
    known: Arc<Toolset>,
}

impl Indexed {
    pub(crate) fn of(server: &McpConnection, nothing: &Arc<Toolset>) -> Self {
        Self {
            offered: Arc::clone(if server.is_listed() { &server.toolset } else { nothing }),
            known: Arc::clone(&server.toolset),
        }
    }
}

impl PartialEq for Indexed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.offered, &other.offered) && Arc::ptr_eq(&self.known, &other.known)
    }
}

impl Eq for Indexed {}
