//! What can be chosen when a daemon is started.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use toolrack_service::{LocalService, ServiceOptions};

pub use crate::history::HistoryOptions;

/// Where a daemon listens unless it is told otherwise. Fixed, so that clients can be told once.
pub const DEFAULT_ADDR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7733);

/// Routes of somebody else, for the servers of this daemon. They are behind the same checks as the API.
pub type Mount = Box<dyn FnOnce(&Arc<LocalService>) -> Router + Send>;

/// What can be chosen when a daemon is started.
pub struct DaemonOptions {
    /// How servers are run. That all enabled ones are started and the file is followed is not a choice.
    pub service: ServiceOptions,
    /// Where to listen for browsers and other clients: an address of this machine alone. `None` for nowhere.
    pub listen: Option<SocketAddr>,
    /// What is remembered of calls.
    pub history: HistoryOptions,
    /// How long calls may go on when the daemon is to end.
    pub drain: Duration,
    /// Routes beside the API, such as `/mcp`.
    pub mount: Option<Mount>,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            service: ServiceOptions::default(),
            listen: Some(DEFAULT_ADDR),
            history: HistoryOptions::default(),
            drain: Duration::from_secs(5),
            mount: None,
        }
    }
}

impl fmt::Debug for DaemonOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonOptions")
            .field("service", &self.service)
            .field("listen", &self.listen)
            .field("history", &self.history)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}
