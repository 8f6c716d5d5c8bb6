//! Lines in memory that can be seen: opened, written to, closed.

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use toolrack_client::Connector;
use toolrack_transport::{
    BoxFuture, Diagnosis, Ending, Inbox, Line, LineError, MemoryLine, MemoryPeer, Outgoing,
    SpawnFault, TransportError, pair,
};
use toolrack_transport::{JsonRpcError, Params, RawJson, RequestId};

/// What was seen, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// What the driver tells the server's end of a line.
#[derive(Debug)]
pub(crate) enum Order {
    Say(String),
    End(Ending),
}

/// Opens lines in memory, and remembers the newest.
#[derive(Debug)]
pub(crate) struct Switchboard {
    pub(crate) log: Log,
    pub(crate) tracker: TaskTracker,
    pub(crate) server: Mutex<Option<mpsc::Sender<Order>>>,
    n_lines: Mutex<usize>,
    pub(crate) launcher: Option<String>,
    pub(crate) opening: Opening,
}

/// What happens when a line is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Works,
    Fails,
    Hangs,
}

impl Switchboard {
    pub(crate) fn new(log: Log, launcher: Option<String>, opening: Opening) -> Switchboard {
        Switchboard {
            log,
            tracker: TaskTracker::new(),
            server: Mutex::default(),
            n_lines: Mutex::default(),
            launcher,
            opening,
        }
    }

    pub(crate) fn order(&self, order: Order) {
        let server = self.server.lock().unwrap();
        server.as_ref().expect("a line is open").try_send(order).expect("the server listens");
    }
}

impl Connector for Switchboard {
    fn open(
        &self,
        incoming: Arc<dyn Inbox>,
    ) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>> {
        Box::pin(async move {
            match self.opening {
                Opening::Works => {}
                Opening::Fails => {
                    let fault = SpawnFault::NoSuchFile("/nowhere".into());
                    return Err(TransportError::Spawn(fault));
                }
                Opening::Hangs => std::future::pending().await,
            }
            let (line, peer) = pair(incoming);
            // Full never happens: the driver lets the server's end run after each order.
            let (orders, receiver) = mpsc::channel(64);
            *self.server.lock().unwrap() = Some(orders);
            let mut n_lines = self.n_lines.lock().unwrap();
            *n_lines += 1;
            self.log.write(format!("= line {n_lines} opened"));
            self.tracker.spawn(serve(peer, receiver, self.log.clone()));
            Ok(Arc::new(SeenLine { line, number: *n_lines, log: self.log.clone() })
                as Arc<dyn Line>)
        })
    }

    fn description(&self) -> String {
        "a line in memory".to_owned()
    }

    fn launcher(&self) -> Option<&str> {
        self.launcher.as_deref()
    }
}

/// The server's end: writes down what comes and says what it is told to say.
async fn serve(mut peer: MemoryPeer, mut orders: mpsc::Receiver<Order>, log: Log) {
    loop {
        tokio::select! {
            biased;
            heard = peer.hear() => match heard {
                Some(text) => log.write(format!("> {}", text.replacen(r#""jsonrpc":"2.0","#, "", 1))),
                None => return,
            },
            Some(order) = orders.recv() => match order {
                Order::Say(text) => peer.say(&text),
                Order::End(ending) => peer.end(&ending),
            },
        }
    }
}

/// A line whose end can be seen.
#[derive(Debug)]
struct SeenLine {
    line: MemoryLine,
    number: usize,
    log: Log,
}

impl Line for SeenLine {
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>> {
        self.line.request(request)
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>> {
        self.line.notify(method, params)
    }

    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError> {
        self.line.answer(id, outcome)
    }

    fn touch(&self, id: u64) -> bool {
        self.line.touch(id)
    }

    fn diagnosis(&self) -> Diagnosis {
        self.line.diagnosis()
    }

    fn close(&self) -> BoxFuture<'_, Ending> {
        self.log.write(format!("= line {} closed", self.number));
        self.line.close()
    }
}

impl Drop for SeenLine {
    fn drop(&mut self) {
        self.log.write(format!("= line {} gone", self.number));
    }
}
