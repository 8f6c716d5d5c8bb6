//! How a client gets its line, without knowing what kind of line it is.

use std::sync::Arc;

use toolrack_transport::{BoxFuture, Inbox, Line, TransportError};

/// Opens lines to one server.
///
/// A connection may need two: a legacy server that died of the first question, or never answered it, is
/// started again before it is greeted.
pub trait Connector: Send + Sync {
    /// Opens a line whose unasked messages go to `inbox`.
    ///
    /// # Cancel safety
    /// Dropping the future must leave nothing running.
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>>;

    /// What is at the other end, for people.
    fn description(&self) -> String;

    /// The program that fetches the server before it runs it, such as `npx`. Such a server may be silent
    /// for a long time and still be well.
    fn launcher(&self) -> Option<&str> {
        None
    }
}
