//! A server's connection in somebody else's hands, for requests that the manager has no words for.
//!
//! **Invariant:** a connection that is borrowed counts as used, so it is not ended for being idle.

use std::ops::Deref;
use std::sync::Arc;

use toolrack_client::McpClient;

use crate::error::RackError;
use crate::manager::McpManager;
use crate::name_reservations::Given;
use crate::server_snapshot::Link;
use crate::tool_names::Namer;

/// A connection that is in use until this is dropped.
#[derive(Debug)]
pub struct Borrowed {
    link: Arc<Link>,
}

impl McpManager {
    /// The connection of a server, for whatever can be asked of it. A server that is started by its first call
    /// is started, and one that is being connected is waited for.
    pub async fn borrow(&self, server: &str) -> Result<Borrowed, RackError> {
        let mut avoid = None;
        loop {
            let connection = self.shared.reach(server, avoid).await?;
            if let Some(link) = &connection.link {
                if let Some(visit) = link.usage.enter() {
                    std::mem::forget(visit);
                    return Ok(Borrowed { link: Arc::clone(link) });
                }
                // It is being ended for being idle, so this is for the next launch.
                avoid = Some(link.epoch);
            }
        }
    }

    /// Fails with [`RackError::Ambiguous`] if a name that is no bare name of a tool may mean tools of several servers.
    pub fn unambiguous(&self, name: &str) -> Result<(), RackError> {
        match self.shared.snapshot.load().resolve(name) {
            Err(several @ RackError::Ambiguous { .. }) => Err(several),
            _ => Ok(()),
        }
    }

    /// The public names of things that servers name, made by the same rules as those of tools.
    pub fn public_names(&self, things: &[(&str, &str)]) -> Vec<String> {
        let snapshot = self.shared.snapshot.load();
        let servers: Vec<&str> = snapshot.servers().iter().map(|it| it.name()).collect();
        let given = Given::default();
        let namer = Namer { style: &self.shared.names, servers: &servers, given: &given };
        namer.name_all(things).into_iter().map(|it| it.public).collect()
    }
}

impl Deref for Borrowed {
    type Target = McpClient;

    fn deref(&self) -> &McpClient {
        &self.link.client
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.link.usage.leave();
    }
}
