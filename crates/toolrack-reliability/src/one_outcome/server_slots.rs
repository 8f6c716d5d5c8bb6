//! A lane always has a server: when one dies, the next is started, and callers get the new one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_transport::Line as _;

use crate::peer::{Peer, Script};
use crate::print;

/// How long a new server may take to introduce itself, on a machine that is busy with the others.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A lane that cannot get a server for so long is given up, and with it the calls it should have made.
const REOPEN_LIMIT: Duration = Duration::from_secs(40);

/// Servers that do not introduce themselves, in a row, before a lane gives up.
const MAX_FAILURES: u32 = 5;

/// All lanes of a batch.
pub(super) struct Lanes {
    open: Vec<Lane>,
    keepers: JoinSet<u64>,
    stop: CancellationToken,
}

/// One lane, as a caller sees it.
#[derive(Clone)]
pub(super) struct Lane {
    /// Nothing until the first server has introduced itself.
    current: watch::Receiver<Option<Arc<Peer>>>,
}

impl Lanes {
    pub(super) fn open(script: &Script, n_lanes: usize) -> Self {
        let stop = CancellationToken::new();
        let mut keepers = JoinSet::new();
        let mut open = Vec::new();
        for _ in 0..n_lanes {
            let (tell, current) = watch::channel(None);
            keepers.spawn(keep(script.clone(), tell, stop.clone()));
            open.push(Lane { current });
        }
        Self { open, keepers, stop }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> + Clone {
        self.open.iter()
    }

    /// Ends every server, waits until they are gone, and says how many there were.
    pub(super) async fn close(self) -> u64 {
        self.stop.cancel();
        self.keepers.join_all().await.into_iter().sum()
    }
}

impl Lane {
    /// A server to call, but not the one that is known to be dead. It may die at any moment.
    pub(super) async fn peer(&mut self, dead: Option<&Arc<Peer>>) -> Option<Arc<Peer>> {
        let is_dead = |peer: &Arc<Peer>| dead.is_some_and(|dead| Arc::ptr_eq(peer, dead));
        let usable = |value: &Option<Arc<Peer>>| value.as_ref().is_some_and(|peer| !is_dead(peer));
        let found = timeout(REOPEN_LIMIT, self.current.wait_for(usable)).await;
        found.ok()?.ok()?.clone()
    }
}

/// Keeps a lane supplied, and says how many servers it took.
async fn keep(
    script: Script,
    current: watch::Sender<Option<Arc<Peer>>>,
    stop: CancellationToken,
) -> u64 {
    let mut closing = JoinSet::new();
    let (mut n_servers, mut n_failures) = (0, 0);
    while !stop.is_cancelled() && n_failures < MAX_FAILURES {
        let peer = match script.meet(START_LIMIT).await {
            Ok(peer) => Arc::new(peer),
            Err(error) => {
                print::talk(format!("G03: a server did not start: {error}"));
                n_failures += 1;
                continue;
            }
        };
        (n_servers, n_failures) = (n_servers + 1, 0);
        current.send_replace(Some(Arc::clone(&peer)));
        tokio::select! {
            () = peer.ended() => {}
            () = stop.cancelled() => {}
        }
        closing.spawn(async move { peer.line.close().await });
    }
    closing.join_all().await;
    n_servers
}
