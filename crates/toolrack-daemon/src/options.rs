//! What can be chosen when a daemon is started.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use toolrack_service::ServiceOptions;

pub use crate::history::HistoryOptions;

/// Where a daemon listens unless it is told otherwise. Fixed, so that clients can be told once.
pub const DEFAULT_ADDR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7733);

/// What can be chosen when a daemon is started.
#[derive(Debug)]
pub struct DaemonOptions {
    /// How servers are run. That all enabled ones are started and the file is followed is not a choice.
    pub service: ServiceOptions,
    /// Where to listen for browsers and other clients: an address of this machine alone. `None` for nowhere.
    pub listen: Option<SocketAddr>,
    /// What is remembered of calls.
    pub history: HistoryOptions,
    /// How long calls may go on when the daemon is to end.
    pub drain: Duration,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            service: ServiceOptions::default(),
            listen: Some(DEFAULT_ADDR),
            history: HistoryOptions::default(),
            drain: Duration::from_secs(5),
        }
    }
}
