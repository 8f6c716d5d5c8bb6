//! Stdio transport: JSON-RPC with a child process over its stdin and stdout.
//!
//! Each caller encodes and writes its own request and waits for its own response. Three tasks serve a transport: the IO
//! task reads stdout, one task reads stderr, and one supervises the server process. The IO task ends with the
//! transport; the other two run until the last process of the server has exited.
//!
//! [`StdioClientTransport`] has the name that the MCP TypeScript SDK gives the client side of the stdio transport. The
//! name `StdioTransport` belongs to the API of founding document 001, see `compat.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_transport::{
    BoxFuture, CANCELLED, CancelledParams, CloseReason, ExitStatus, IncomingHandler, JsonRpcError,
    MessageRouter, OutgoingRequest, Params, QueuedRequest, RequestError, RequestId, RequestQueue,
    ResponseFuture, Transport, TransportError, TransportStats, write_notification, write_request,
    write_response,
};

use crate::io_task::{DEADLINE, EXITED, FLUSH, IoTask, Wakeups};
use crate::launch_spec::LaunchSpec;
use crate::options::{McpServerDef, ShutdownTimeouts, StdioOptions};
use crate::orphan_cleanup::new_process_tag;
use crate::process::{DesiredState, ProcessState, ServerProcess};
use crate::stderr::{StderrTail, read_stderr};
use crate::write_queue::{QueueError, WriteQueue, WriteStatus};

/// How long a notification waits for room in the write queue.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of stderr lines in [`TransportStats`].
const STDERR_LINES: usize = 50;

type Write<'a> = &'a (dyn Fn(&mut Vec<u8>) -> Result<(), serde_json::Error> + Sync);

/// A stdio transport to a server that runs as a child process.
///
/// Dropping it ends the server in the background; [`Transport::close`] ends it and waits. The runtime in which it was
/// spawned has to run as long as the transport is used: dropping the runtime closes the transport, and a runtime that
/// is not driven delivers neither responses nor timeouts.
#[derive(Debug)]
pub struct StdioClientTransport {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// State that the callers share with the tasks of a transport.
pub(crate) struct Shared {
    pub(crate) router: MessageRouter,
    pub(crate) queue: WriteQueue,
    pub(crate) wakeups: Wakeups,
    pub(crate) stderr: StderrTail,
    pub(crate) stderr_closed: CancellationToken,
    desired: watch::Sender<DesiredState>,
    process_state: watch::Sender<ProcessState>,
    shutdown: ShutdownTimeouts,
    close_timeout: Duration,
    pid: Option<u32>,
}

impl StdioClientTransport {
    /// Starts a server. Messages that are not responses go to `handler`.
    ///
    /// # Cancel safety
    /// Dropping the future ends every process that was started.
    pub async fn spawn(
        definition: &McpServerDef,
        options: StdioOptions,
        handler: Arc<dyn IncomingHandler>,
    ) -> Result<Self, TransportError> {
        let tag = new_process_tag();
        let spec =
            LaunchSpec::resolve(definition, &options, &tag).map_err(TransportError::Spawn)?;
        let (process, pipes) = ServerProcess::start(&spec, &options, tag).await?;
        let shared = Arc::new(Shared {
            router: MessageRouter::new(handler, options.redactor.clone()),
            queue: WriteQueue::new(pipes.stdin, options.max_queued_bytes),
            wakeups: Wakeups::default(),
            close_timeout: options.close_timeout(),
            stderr: StderrTail::new(options.redactor),
            stderr_closed: CancellationToken::new(),
            desired: watch::Sender::new(DesiredState::Running),
            process_state: watch::Sender::new(ProcessState::Running),
            shutdown: options.shutdown,
            pid: process.pid(),
        });
        let tasks = TaskTracker::new();
        let io_task = IoTask::new(Arc::clone(&shared), pipes.stdout, options.max_message_bytes);
        tasks.spawn(io_task.run());
        tasks.spawn(read_stderr(Arc::clone(&shared), pipes.stderr));
        // Subscribe here and not in the task: the task may first run after a stop was requested, and a new
        // subscriber would take that request for the initial value.
        let desired = shared.desired.subscribe();
        let supervised = Arc::clone(&shared);
        tasks.spawn(async move {
            let report = |state| {
                supervised.process_state.send_replace(state);
                supervised.wakeups.raise(EXITED);
            };
            process.supervise(desired, &report).await;
        });
        tasks.close();
        Ok(Self { shared, tasks })
    }

    /// Whether the server's process runs.
    pub fn is_running(&self) -> bool {
        *self.shared.process_state.borrow() == ProcessState::Running
    }

    /// Sends a serializable message unchanged.
    pub(crate) async fn send_value(
        &self,
        message: &(impl Serialize + Sync),
    ) -> Result<(), TransportError> {
        let write = |out: &mut Vec<u8>| {
            serde_json::to_writer(&mut *out, message)?;
            out.push(b'\n');
            Ok(())
        };
        self.shared.send(&write).await
    }
}

impl Transport for StdioClientTransport {
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a> {
        let shared = &*self.shared;
        let deadline = request.timeout.start();
        let response = match shared.router.pending.register(deadline) {
            Ok(response) => response,
            Err(reason) => {
                let error = RequestError::not_sent(reason.to_error());
                return ResponseFuture::Boxed(Box::pin(async { Err(error) }));
            }
        };
        // Most requests expire after the one that the timer is set for, and need not wake the IO task.
        if response.is_earliest() {
            shared.wakeups.raise(DEADLINE);
        }
        let id = response.id();
        let write = move |out: &mut Vec<u8>| write_request(out, id, request.method, request.params);
        let new_queued = move |response| QueuedRequest::new(response, shared, request.on_cancel);
        match shared.queue.push(Some(id), &write) {
            Ok(WriteStatus::Done) => ResponseFuture::Queued(new_queued(response)),
            Ok(status) => {
                let (guard, queued) = (WriteGuard { shared, status }, new_queued(response));
                ResponseFuture::Boxed(Box::pin(async move {
                    guard.finish().await;
                    queued.await
                }))
            }
            Err(error) => ResponseFuture::Boxed(Box::pin(async move {
                let expires_at = Instant::from_std(deadline.expires_at);
                let pushed = shared.push_later(Some(id), &write, error, expires_at).await;
                let guard = pushed.map_err(|error| {
                    // The close reason says more than the closed stdin.
                    let closed =
                        shared.router.pending.close_reason().map(|reason| reason.to_error());
                    let waited = deadline.expires_at - deadline.started;
                    let timed_out = || TransportError::timed_out(waited);
                    RequestError::not_sent(closed.or(error).unwrap_or_else(timed_out))
                })?;
                let queued = new_queued(response);
                guard.finish().await;
                queued.await
            })),
        }
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let write = |out: &mut Vec<u8>| write_notification(out, method, params);
            self.shared.send(&write).await.map_err(RequestError::not_sent)
        })
    }

    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError> {
        let write = |out: &mut Vec<u8>| write_response(out, id, outcome);
        self.shared.try_send(&write).map_err(RequestError::not_sent)
    }

    fn extend_deadline(&self, id: Option<u64>) {
        self.shared.router.extend_deadline(id);
    }

    fn stats(&self) -> TransportStats {
        let stderr = self.shared.stderr.tail(STDERR_LINES).to_vec();
        let pid = self.shared.pid.filter(|_| self.is_running());
        TransportStats { stderr, pid, ..self.shared.router.counters().stats() }
    }

    fn close(&self) -> BoxFuture<'_, CloseReason> {
        self.shared.close(&CloseReason::Closed);
        Box::pin(async move {
            let limit = self.shared.close_timeout;
            // The supervising task is the last to end. If the runtime was dropped, all tasks are gone and this returns
            // at once.
            if timeout(limit, self.tasks.wait()).await.is_err() {
                tracing::warn!(
                    ?limit,
                    "server processes did not exit in time; left to the guardian"
                );
                self.shared.desired.send_replace(DesiredState::Abandoned);
            }
            self.shared.router.pending.close_reason().unwrap_or(CloseReason::Closed)
        })
    }
}

impl Drop for StdioClientTransport {
    fn drop(&mut self) {
        self.shared.router.close(&CloseReason::Closed);
        self.shared.queue.close();
        self.shared.desired.send_replace(DesiredState::Abandoned);
    }
}

impl Shared {
    /// Closes the transport and starts the shutdown of the server.
    pub(crate) fn close(&self, reason: &CloseReason) {
        self.router.close(reason);
        self.queue.close();
        self.desired.send_if_modified(|desired| {
            // Only the first close requests a stop, and an abandoned server stays abandoned.
            let first = *desired == DesiredState::Running;
            if first {
                *desired = DesiredState::Stopped(self.shutdown);
            }
            first
        });
    }

    /// Waits for the server process to exit.
    pub(crate) async fn wait_exit(&self) -> ExitStatus {
        let mut state = self.process_state.subscribe();
        match state.wait_for(|state| *state != ProcessState::Running).await.as_deref() {
            Ok(ProcessState::Exited(status) | ProcessState::Gone(status)) => *status,
            Ok(ProcessState::Running) | Err(_) => ExitStatus::Unknown,
        }
    }

    /// Waits until no process of the server is left.
    pub(crate) async fn wait_gone(&self) {
        let mut state = self.process_state.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        let _gone = state.wait_for(|state| matches!(state, ProcessState::Gone(_))).await;
    }

    /// Queues a message without waiting.
    fn push(&self, id: Option<u64>, write: Write<'_>) -> Result<WriteGuard<'_>, QueueError> {
        let status = self.queue.push(id, write)?;
        Ok(WriteGuard { shared: self, status })
    }

    /// Queues a message that was rejected, after a wait for room until the deadline. Fails with `None` on timeout.
    async fn push_later(
        &self,
        id: Option<u64>,
        write: Write<'_>,
        mut error: QueueError,
        deadline: Instant,
    ) -> Result<WriteGuard<'_>, Option<TransportError>> {
        loop {
            if let QueueError::Failed(error) = error {
                return Err(Some(error));
            }
            let room = self.queue.room();
            // Room may have been made after the rejection and before the line above, which then misses the wake-up.
            if self.queue.is_full() && timeout_at(deadline, room).await.is_err() {
                return Err(None);
            }
            match self.push(id, write) {
                Ok(guard) => return Ok(guard),
                Err(next) => error = next,
            }
        }
    }

    /// Sends a message that is not a request, after a wait for room.
    async fn send(&self, write: Write<'_>) -> Result<(), TransportError> {
        let guard = match self.push(None, write) {
            Ok(guard) => guard,
            Err(error) => {
                let pushed = self.push_later(None, write, error, Instant::now() + NOTIFY_TIMEOUT);
                let timed_out = || TransportError::timed_out(NOTIFY_TIMEOUT);
                pushed.await.map_err(|error| error.unwrap_or_else(timed_out))?
            }
        };
        guard.finish().await;
        Ok(())
    }

    /// Sends a message without waiting, or fails.
    fn try_send(&self, write: Write<'_>) -> Result<(), TransportError> {
        self.push(None, write).map(drop).map_err(|error| match error {
            QueueError::Failed(error) => error,
            QueueError::Full { buffered_bytes } => TransportError::QueueFull { buffered_bytes },
        })
    }
}

/// Does on drop what the status of a queued message demands: other callers rely on it.
struct WriteGuard<'a> {
    shared: &'a Shared,
    status: WriteStatus,
}

impl WriteGuard<'_> {
    async fn finish(self) {
        if self.status == WriteStatus::FlushLater {
            // Several callers were woken together. The yield lets the others queue their requests, so that one write
            // sends them all.
            yield_now().await;
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let needs_io_task = match self.status {
            WriteStatus::Done => false,
            WriteStatus::Blocked | WriteStatus::Broken => true,
            WriteStatus::FlushLater => self.shared.queue.flush() != WriteStatus::Done,
        };
        if needs_io_task {
            self.shared.wakeups.raise(FLUSH);
        }
    }
}

impl RequestQueue for Shared {
    fn withdraw(&self, id: u64) -> bool {
        self.queue.withdraw(id)
    }

    fn cancel(&self, id: u64) {
        let write = |out: &mut Vec<u8>| write_notification(out, CANCELLED, &CancelledParams(id));
        let sent = self.try_send(&write);
        sent.unwrap_or_else(|error| tracing::trace!(%error, "cancel notification not sent"));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("process_state", &*self.process_state.borrow())
            .field("router", &self.router)
            .finish_non_exhaustive()
    }
}
