//! A line to a child process.
//!
//! Callers write their requests themselves and wait for their own answers. Three tasks serve the line:
//! the driver reads answers, one reads the error output, one keeps the processes. The driver ends with the
//! line; the other two go on until nothing of the server is left.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_transport::{
    Abandon, BoxFuture, CANCELLED, Cancelled, Diagnosis, Ending, Exit, Inbound, Inbox, Line,
    LineError, Outgoing, TransportError,
};
use toolrack_transport::{
    JsonRpcError, Params, RawJson, RequestId, write_answer, write_notification, write_request,
};

use crate::io_task::{Bell, Driver};
use crate::launch_spec::LaunchSpec;
use crate::options::{Ladder, McpServerDef, StdioOptions};
use crate::orphan_cleanup;
use crate::process::{Custody, Life, Wish};
use crate::stderr::{Stderr, read_stderr};
use crate::write_queue::{Flushed, Outbox, Posted, Refusal};

/// How long a notification waits for room in front of a server that does not read.
const NOTIFY_LIMIT: Duration = Duration::from_secs(30);

/// How many lines of the error output a diagnosis shows.
const STDERR_LINES: usize = 50;

type Write<'a> = &'a (dyn Fn(&mut Vec<u8>) -> Result<(), serde_json::Error> + Sync);

/// An open line to a child process.
///
/// Dropping it ends the server without waiting; [`Line::close`] ends it and waits. The runtime in which it is opened
/// has to run for as long as the line is used: when that is dropped the line ends, and while it stands still nobody
/// hears of answers or of time that is over.
#[derive(Debug)]
pub struct StdioLine {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// What the callers and the tasks of a line share.
pub(crate) struct Shared {
    pub(crate) inbound: Inbound,
    pub(crate) outbox: Outbox,
    pub(crate) bell: Bell,
    pub(crate) stderr: Stderr,
    pub(crate) stderr_closed: CancellationToken,
    wish: watch::Sender<Wish>,
    life: watch::Sender<Life>,
    ladder: Ladder,
    closing_limit: Duration,
    process: Option<u32>,
}

impl StdioLine {
    /// Starts a server. What it says unasked goes to `inbox`.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever has been started.
    pub async fn open(
        definition: &McpServerDef,
        options: StdioOptions,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, TransportError> {
        let mark = orphan_cleanup::next();
        let spec =
            LaunchSpec::resolve(definition, &options, &mark).map_err(TransportError::Spawn)?;
        let (custody, pipes) = Custody::start(&spec, &options, mark).await?;
        let shared = Arc::new(Shared {
            inbound: Inbound::new(inbox).masked(options.mask.clone()),
            outbox: Outbox::new(pipes.input, options.outbox_limit_bytes),
            bell: Bell::default(),
            closing_limit: options.closing_limit(),
            stderr: Stderr::new(options.mask),
            stderr_closed: CancellationToken::new(),
            wish: watch::Sender::new(Wish::Run),
            life: watch::Sender::new(Life::Running),
            ladder: options.ladder,
            process: custody.process(),
        });
        let tasks = TaskTracker::new();
        let driver = Driver::new(Arc::clone(&shared), pipes.output, options.line_limit_bytes);
        tasks.spawn(driver.run());
        tasks.spawn(read_stderr(Arc::clone(&shared), pipes.errors));
        // Listening begins here: the task may run only after the first wish.
        let wishes = shared.wish.subscribe();
        tasks.spawn(keep(Arc::clone(&shared), custody, wishes));
        tasks.close();
        Ok(Self { shared, tasks })
    }

    /// Whether the server's process runs.
    pub fn is_running(&self) -> bool {
        *self.shared.life.borrow() == Life::Running
    }

    async fn ask(&self, request: Outgoing<'_>) -> Result<RawJson, LineError> {
        let shared = &*self.shared;
        let due = request.patience.begin();
        let mut ticket =
            shared.inbound.claim(due).map_err(|ending| LineError::not_sent(ending.to_error()))?;
        if ticket.is_soonest() {
            shared.bell.alarm();
        }
        let id = ticket.id();
        // Until the message is in the buffer there is nothing to take back.
        let posted = AtomicBool::new(false);
        let write = |out: &mut Vec<u8>| {
            posted.store(true, Ordering::Relaxed);
            write_request(out, id, request.method, request.params)
        };
        let mut farewell = Farewell { shared, id, abandon: request.abandon, posted: &posted };
        if let Err(error) = shared.post(Some(id), &write, Instant::from_std(due.at)).await {
            farewell.abandon = Abandon::Quietly;
            // Why the line ended says more than that its input is closed.
            let ended = shared.inbound.ending().map(|ending| ending.to_error());
            let timed_out = || TransportError::timed_out(due.at - due.started);
            return Err(LineError::not_sent(ended.or(error).unwrap_or_else(timed_out)));
        }
        match (&mut ticket).await {
            // The driver's clock has settled it.
            Ok(Err(error @ TransportError::Timeout(_))) => Err(farewell.failure(error)),
            Ok(reply) => {
                farewell.abandon = Abandon::Quietly;
                reply.map_err(LineError::answered)
            }
            Err(ending) => Err(farewell.failure(ending.to_error())),
        }
    }

    async fn tell(&self, method: &str, params: &dyn Params) -> Result<(), LineError> {
        let write = |out: &mut Vec<u8>| write_notification(out, method, params);
        let started = Instant::now();
        let posted = self.shared.post(None, &write, started + NOTIFY_LIMIT).await;
        posted.map_err(|error| {
            let error = error.unwrap_or_else(|| TransportError::timed_out(NOTIFY_LIMIT));
            LineError::not_sent(error)
        })
    }

    /// Sends a whole message, as it is.
    pub(crate) async fn send_value(
        &self,
        message: &(impl Serialize + Sync),
    ) -> Result<(), TransportError> {
        let write = |out: &mut Vec<u8>| {
            serde_json::to_writer(&mut *out, message)?;
            out.push(b'\n');
            Ok(())
        };
        let posted = self.shared.post(None, &write, Instant::now() + NOTIFY_LIMIT).await;
        posted.map_err(|error| error.unwrap_or_else(|| TransportError::timed_out(NOTIFY_LIMIT)))
    }

    async fn finish(&self) -> Ending {
        let limit = self.shared.closing_limit;
        // The last of them keeps the processes until nothing is left. All are gone as well if their runtime is.
        if timeout(limit, self.tasks.wait()).await.is_err() {
            tracing::warn!(?limit, "a server's processes do not end; left to their guardian");
            self.shared.wish.send_replace(Wish::Abandon);
        }
        self.shared.inbound.ending().unwrap_or(Ending::Closed)
    }
}

impl Line for StdioLine {
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>> {
        Box::pin(self.ask(request))
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(self.tell(method, params))
    }

    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError> {
        let write = |out: &mut Vec<u8>| write_answer(out, id, outcome);
        self.shared.post_now(None, &write).map_err(LineError::not_sent)
    }

    fn touch(&self, id: u64) -> bool {
        self.shared.inbound.touch(id)
    }

    fn diagnosis(&self) -> Diagnosis {
        let stderr = self.shared.stderr.tail(STDERR_LINES).to_vec();
        let process = self.shared.process.filter(|_| self.is_running());
        Diagnosis { stderr, process, ..self.shared.inbound.tally().diagnosis() }
    }

    fn close(&self) -> BoxFuture<'_, Ending> {
        self.shared.hang_up(&Ending::Closed);
        Box::pin(self.finish())
    }
}

impl Drop for StdioLine {
    fn drop(&mut self) {
        self.shared.inbound.end(&Ending::Closed);
        self.shared.outbox.close();
        self.shared.wish.send_replace(Wish::Abandon);
    }
}

impl Shared {
    /// Ends the line and has the server ended.
    pub(crate) fn hang_up(&self, ending: &Ending) {
        self.inbound.end(ending);
        self.outbox.close();
        self.wish.send_if_modified(|wish| {
            let first = *wish == Wish::Run;
            if first {
                *wish = Wish::Stop(self.ladder);
            }
            first
        });
    }

    /// Waits for the server's process to end, and says how.
    pub(crate) async fn exit(&self) -> Exit {
        let mut life = self.life.subscribe();
        match life.wait_for(|life| *life != Life::Running).await.as_deref() {
            Ok(Life::Exited(exit) | Life::Gone(exit)) => *exit,
            Ok(Life::Running) | Err(_) => Exit::Unknown,
        }
    }

    /// Waits until nothing is left of the server.
    pub(crate) async fn gone(&self) {
        let mut life = self.life.subscribe();
        // The sender is ours, so the wait cannot fail.
        let _gone = life.wait_for(|life| matches!(life, Life::Gone(_))).await;
    }

    fn learn(&self, life: Life) {
        self.life.send_replace(life);
        self.bell.exited();
    }

    /// Puts a message in, waiting for room until the deadline. Fails with `None` if there was none.
    async fn post(
        &self,
        id: Option<u64>,
        write: Write<'_>,
        deadline: Instant,
    ) -> Result<(), Option<TransportError>> {
        loop {
            match self.outbox.post(id, write) {
                Ok(Posted::FlushSoon) => {
                    let promise = Promise(self);
                    yield_now().await;
                    drop(promise);
                    return Ok(());
                }
                Ok(Posted::Done) => return Ok(()),
                Ok(Posted::CallDriver) => {
                    self.bell.outbox();
                    return Ok(());
                }
                Err(Refusal::Failed(error)) => return Err(Some(error)),
                Err(Refusal::Full { .. }) => {}
            }
            let room = self.outbox.room();
            // Room may have been made before we began to listen for it.
            if !self.outbox.is_full() {
                continue;
            }
            if timeout_at(deadline, room).await.is_err() {
                return Err(None);
            }
        }
    }

    /// Puts a message in at once, or fails.
    fn post_now(&self, id: Option<u64>, write: Write<'_>) -> Result<(), TransportError> {
        match self.outbox.post(id, write) {
            Ok(Posted::Done) => Ok(()),
            Ok(Posted::CallDriver) => {
                self.bell.outbox();
                Ok(())
            }
            Ok(Posted::FlushSoon) => {
                drop(Promise(self));
                Ok(())
            }
            Err(Refusal::Failed(error)) => Err(error),
            Err(Refusal::Full { buffered_bytes }) => {
                Err(TransportError::Clogged { buffered_bytes })
            }
        }
    }
}

/// A promise to flush, kept when it is dropped, whatever the reason for the drop.
struct Promise<'a>(&'a Shared);

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        match self.0.outbox.flush() {
            Flushed::All => {}
            Flushed::Stuck | Flushed::Broken => self.0.bell.outbox(),
        }
    }
}

/// What is done about a request that nobody waits for any more.
struct Farewell<'a> {
    shared: &'a Shared,
    id: u64,
    abandon: Abandon,
    posted: &'a AtomicBool,
}

impl Farewell<'_> {
    /// Ends the request and says how far it had come.
    fn failure(&mut self, error: TransportError) -> LineError {
        if !self.shared.outbox.withdraw(self.id) {
            return LineError::unknown(error);
        }
        self.abandon = Abandon::Quietly;
        LineError::not_sent(error)
    }
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        let quietly = self.abandon == Abandon::Quietly || !self.posted.load(Ordering::Relaxed);
        if quietly || self.shared.outbox.withdraw(self.id) {
            return;
        }
        let write = |out: &mut Vec<u8>| write_notification(out, CANCELLED, &Cancelled(self.id));
        let told = self.shared.post_now(None, &write);
        told.unwrap_or_else(|error| tracing::trace!(%error, "the server was not told"));
    }
}

async fn keep(shared: Arc<Shared>, custody: Custody, wishes: watch::Receiver<Wish>) {
    custody.keep(wishes, &|life| shared.learn(life)).await;
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("life", &*self.life.borrow())
            .field("inbound", &self.inbound)
            .finish_non_exhaustive()
    }
}
