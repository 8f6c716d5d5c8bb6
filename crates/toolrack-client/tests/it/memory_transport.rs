//! In-memory transports that log when they are opened, closed and dropped.

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use toolrack_client::Connector;
use toolrack_transport::{
    BoxFuture, CloseReason, InMemoryPeer, InMemoryTransport, IncomingHandler, OutgoingRequest,
    RequestError, ResponseFuture, SpawnError, Transport, TransportError, TransportStats,
    in_memory_pair,
};
use toolrack_transport::{JsonRpcError, Params, RequestId};

/// Observed lines, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn write(&self, entry: String) {
        self.0.lock().unwrap().push(entry);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Command for the server side of a transport.
#[derive(Debug)]
pub(crate) enum PeerCommand {
    Send(String),
    Close(CloseReason),
}

/// Opens in-memory transports and keeps the newest.
#[derive(Debug)]
pub(crate) struct MemoryConnector {
    pub(crate) log: Log,
    pub(crate) tracker: TaskTracker,
    pub(crate) server: Mutex<Option<mpsc::Sender<PeerCommand>>>,
    n_transports: Mutex<usize>,
    pub(crate) launcher: Option<String>,
    pub(crate) open_behavior: OpenBehavior,
}

/// Outcome of opening a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenBehavior {
    Works,
    Fails,
    Hangs,
}

impl MemoryConnector {
    pub(crate) fn new(
        log: Log,
        launcher: Option<String>,
        open_behavior: OpenBehavior,
    ) -> MemoryConnector {
        MemoryConnector {
            log,
            tracker: TaskTracker::new(),
            server: Mutex::default(),
            n_transports: Mutex::default(),
            launcher,
            open_behavior,
        }
    }

    pub(crate) fn send_command(&self, command: PeerCommand) {
        let server = self.server.lock().unwrap();
        server
            .as_ref()
            .expect("a transport is open")
            .try_send(command)
            .expect("the peer task runs");
    }
}

impl Connector for MemoryConnector {
    fn open(
        &self,
        incoming: Arc<dyn IncomingHandler>,
    ) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(async move {
            match self.open_behavior {
                OpenBehavior::Works => {}
                OpenBehavior::Fails => {
                    let fault = SpawnError::NoSuchFile("/nowhere".into());
                    return Err(TransportError::Spawn(fault));
                }
                OpenBehavior::Hangs => std::future::pending().await,
            }
            let (inner, peer) = in_memory_pair(incoming);
            // Never full: the fixture runs the server side after each command.
            let (commands, receiver) = mpsc::channel(64);
            *self.server.lock().unwrap() = Some(commands);
            let mut n_transports = self.n_transports.lock().unwrap();
            *n_transports += 1;
            self.log.write(format!("= transport {n_transports} opened"));
            self.tracker.spawn(serve(peer, receiver, self.log.clone()));
            Ok(Arc::new(LoggedTransport { inner, number: *n_transports, log: self.log.clone() })
                as Arc<dyn Transport>)
        })
    }

    fn launcher(&self) -> Option<&str> {
        self.launcher.as_deref()
    }
}

/// Server side: logs received messages and performs commands.
async fn serve(mut peer: InMemoryPeer, mut commands: mpsc::Receiver<PeerCommand>, log: Log) {
    loop {
        tokio::select! {
            biased;
            message = peer.recv() => match message {
                Some(text) => log.write(format!("> {}", text.replacen(r#""jsonrpc":"2.0","#, "", 1))),
                None => return,
            },
            Some(command) = commands.recv() => match command {
                PeerCommand::Send(text) => peer.send(&text),
                PeerCommand::Close(ending) => peer.close(&ending),
            },
        }
    }
}

/// Transport that logs its close and drop.
#[derive(Debug)]
struct LoggedTransport {
    inner: InMemoryTransport,
    number: usize,
    log: Log,
}

impl Transport for LoggedTransport {
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a> {
        self.inner.request(request)
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        self.inner.notify(method, params)
    }

    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError> {
        self.inner.respond(id, outcome)
    }

    fn extend_deadline(&self, id: Option<u64>) {
        self.inner.extend_deadline(id);
    }

    fn stats(&self) -> TransportStats {
        self.inner.stats()
    }

    fn close(&self) -> BoxFuture<'_, CloseReason> {
        self.log.write(format!("= transport {} closed", self.number));
        self.inner.close()
    }
}

impl Drop for LoggedTransport {
    fn drop(&mut self) {
        self.log.write(format!("= transport {} dropped", self.number));
    }
}
