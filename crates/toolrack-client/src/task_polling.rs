//! Task polling: tool calls that a server runs as tasks, polled until they look like any other call.
//!
//! In 2025-11-25 some tools must be called as a task, and the client asks for one. In the modern era the
//! server decides, if both sides have the extension.
//!
//! **Invariant:** a task that is no longer polled has ended, or the server gets `tasks/cancel`.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};
use toolrack_mcp::{
    CallToolParams, CancelTaskParams, Era, ErrorCode, GetTaskParams, GetTaskReportParams, Method,
    Progress, ProgressToken, Request, RequestResult as _, ResultType, TASKS_EXTENSION, Task,
    TaskParams, TaskResultParams, TaskStatus, Tool, UpdateTaskParams,
};
use toolrack_transport::{Delivery, JsonRpcError, RawJson, deadline_after, sanitize_line};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::pagination::List;
use crate::request_meta::WantProgress;
use crate::session::{Session, decode};

/// Poll interval if the server suggests none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Limits for the interval that a server suggests.
const POLL_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(30);
/// Consecutive failed polls to tolerate. The task keeps running meanwhile.
const MAX_POLL_FAILURES: u32 = 3;
/// Timeout of `tasks/cancel`.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a server's cancellation reason.
const REASON_CHARS: usize = 200;

fn poll_interval(task: &Task) -> Duration {
    task.poll_interval
        .unwrap_or(DEFAULT_POLL_INTERVAL)
        // A server may suggest 0, which would be a busy loop, or hours, which would
        // outlast the call.
        .clamp(*POLL_INTERVAL_RANGE.start(), *POLL_INTERVAL_RANGE.end())
}

impl Session {
    /// Records whether any tool must be called as a task.
    ///
    /// Spec 2025-11-25, tasks §Tool-Level Negotiation: without the server capability, the task support of a tool
    /// does not count.
    pub(crate) fn update_task_tools(&self, list: &List<Tool>) {
        let accepts_tasks =
            self.revision().has_core_tasks() && self.server.capabilities.tasks().calls;
        let any = accepts_tasks && list.items.iter().any(Tool::needs_task);
        // A flag beside the list, so that a call to a server without such tools takes no lock.
        self.has_task_tools.store(any, Ordering::Release);
    }

    /// Whether a tool must be called as a task. One atomic load, unless the server has such tools.
    pub(crate) fn needs_task(&self, tool: &str) -> bool {
        self.has_task_tools.load(Ordering::Acquire)
            && self
                .cached_list::<Tool>()
                .items
                .iter()
                .any(|listed| listed.name == tool && listed.needs_task())
    }

    /// Calls a tool as a 2025-11-25 task.
    pub(crate) async fn call_as_task(
        self: &Arc<Self>,
        params: CallToolParams<'_>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let Some(on_progress) = &options.on_progress else {
            return self.run_task(&params, options, WantProgress::Yes).await;
        };
        // Spec 2025-11-25, tasks §Progress: the call's progress token stays valid for the task's lifetime.
        let receiver = self.incoming.progress.receiver(on_progress);
        receiver.run_with(self.run_task(&params, options, WantProgress::To(&receiver))).await
    }

    async fn run_task(
        self: &Arc<Self>,
        params: &CallToolParams<'_>,
        options: &CallOptions,
        progress: WantProgress<'_>,
    ) -> Result<RawJson, CallError> {
        let total = self.timeout_for(options).total;
        // The server need not keep the task longer than the caller waits for it.
        let ttl = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        // Taken before the first request, so creation and polls share one total timeout.
        let deadline = deadline_after(Instant::now(), total);
        let params = CallToolParams { task: Some(TaskParams { ttl }), ..*params };
        let raw = self.send(&params, options, progress).await?;
        let created = Task::created(raw.as_bytes());
        match created.map_err(|error| CallError::undecodable(Method::CallTool, error))? {
            Some(task) => TaskPoller::run(self, options, task, deadline).await,
            // The server answered at once, without a task.
            None => Ok(raw),
        }
    }

    /// Polls the task that a modern server created for a request.
    pub(crate) async fn poll_task<P: Request>(
        self: &Arc<Self>,
        raw: RawJson,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        // Protocol facts §4.2: `task` is a valid result type only here; elsewhere the
        // response is invalid.
        let may_create_tasks = self.era() == Era::Modern
            && self.server.capabilities.extensions.contains_key(TASKS_EXTENSION);
        if P::METHOD != Method::CallTool || !may_create_tasks {
            return self.require_complete(P::METHOD, raw);
        }
        let task = Task::decode(raw.as_bytes());
        let task = task.map_err(|error| CallError::undecodable(P::METHOD, error))?;
        let deadline = deadline_after(Instant::now(), self.timeout_for(options).total);
        TaskPoller::run(self, options, task, deadline).await
    }
}

/// A task being polled.
struct TaskPoller<'a> {
    session: &'a Arc<Session>,
    options: &'a CallOptions,
    task: Task,
    deadline: Instant,
    /// The task has ended, or the server does not know it: nothing to cancel.
    is_finished: bool,
    /// Last status message reported as progress, and the number of messages so far.
    last_message: Option<String>,
    n_messages: u32,
}

impl<'a> TaskPoller<'a> {
    /// Polls a task until it ends.
    async fn run(
        session: &'a Arc<Session>,
        options: &'a CallOptions,
        task: Task,
        deadline: Instant,
    ) -> Result<RawJson, CallError> {
        let (is_finished, last_message, n_messages) = (false, None, 0);
        let mut poller =
            Self { session, options, task, deadline, is_finished, last_message, n_messages };
        let polling = async {
            match session.era() {
                Era::Legacy => poller.legacy_result().await,
                Era::Modern => poller.modern_result().await,
            }
        };
        // The outer timeout also covers the sleeps and the user's answers, which no
        // request timeout bounds.
        let outcome = timeout_at(deadline, polling).await.unwrap_or_else(|_elapsed| {
            let waited = session.timeout_for(options).total;
            Err(CallError::TimedOut { waited, delivery: Delivery::Unknown })
        });
        // A task with a result or an error is not cancelled.
        let status = poller.task.status;
        poller.is_finished |= match &outcome {
            Ok(_) => true,
            Err(CallError::Refused(error)) => status.is_final() || is_unknown_task(error),
            Err(_) => false,
        };
        outcome
    }

    /// Polls a 2025-11-25 task, then fetches its result.
    async fn legacy_result(&mut self) -> Result<RawJson, CallError> {
        while self.task.status == TaskStatus::Working {
            self.report_progress();
            sleep(poll_interval(&self.task)).await;
            let reported = self.get_task(&GetTaskParams { task_id: &self.task.id }).await?;
            self.update(reported);
        }
        // A failed task is not handled here: `tasks/result` returns its original error.
        if self.task.status == TaskStatus::Cancelled {
            return Err(self.cancelled_by_server());
        }
        // Spec 2025-11-25, tasks §Input Required Status: the server sends its requests while `tasks/result` is open,
        // so an `input_required` task is answered by fetching the result.
        let params = TaskResultParams { task_id: &self.task.id };
        self.session.send(&params, &self.remaining_options(), WantProgress::No).await
    }

    /// Polls a modern task, whose final status contains the result.
    async fn modern_result(&mut self) -> Result<RawJson, CallError> {
        let mut answered = HashSet::new();
        let mut n_rounds = 0;
        // A task that waits for input or has ended is polled at once.
        let mut is_working = self.task.status == TaskStatus::Working;
        loop {
            self.report_progress();
            if is_working {
                sleep(poll_interval(&self.task)).await;
            }
            // Only the first poll may come at once.
            is_working = true;
            let report = self.get_task(&GetTaskReportParams { task_id: &self.task.id }).await?;
            self.update(report.task);
            match self.task.status {
                TaskStatus::Working => {}
                TaskStatus::Completed => {
                    return Ok(report.result.map_or(RawJson::NULL, RawJson::from));
                }
                TaskStatus::Failed => return Err(task_error(report.error.as_deref())),
                TaskStatus::Cancelled => return Err(self.cancelled_by_server()),
                TaskStatus::InputRequired => {
                    // Spec 2026-07-28, tasks: a key identifies one input request for the task's lifetime, and an
                    // answered one may still be listed for a while.
                    let mut requests = report.input_requests;
                    requests.retain(|(key, _)| !answered.contains(key));
                    if requests.is_empty() {
                        continue;
                    }
                    if n_rounds >= self.session.limits.input_rounds {
                        return Err(CallError::TooManyRounds { rounds: n_rounds });
                    }
                    n_rounds += 1;
                    // Before the user answers: the acknowledgment is eventually consistent, and a
                    // key asked for twice would prompt the user twice.
                    answered.extend(requests.iter().map(|(key, _)| key.clone()));
                    let input_responses = &self.session.answer_input_requests(requests).await?;
                    let params = UpdateTaskParams { task_id: &self.task.id, input_responses };
                    self.session.send(&params, &self.remaining_options(), WantProgress::No).await?;
                }
            }
        }
    }

    /// Polls the task once. A lost response loses no work, so transient errors are retried.
    async fn get_task<P: Request + Sync>(&self, params: &P) -> Result<P::Result, CallError> {
        let mut n_failures = 0;
        loop {
            match self.session.send(params, &self.remaining_options(), WantProgress::No).await {
                Ok(raw) => {
                    // The text and the examples of the extension disagree about this result type; accept both.
                    let kind = self.session.result_type(&raw);
                    if !matches!(kind, ResultType::Complete | ResultType::Task) {
                        let text = format!("unexpected result type {kind:?}");
                        return Err(CallError::unexpected(P::METHOD, text));
                    }
                    return decode::<P>(&raw);
                }
                Err(error) if self.is_transient(&error) && n_failures < MAX_POLL_FAILURES => {
                    tracing::debug!(%error, "task poll failed");
                    n_failures += 1;
                    sleep(poll_interval(&self.task)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes over the new status. The id of the first response stays.
    fn update(&mut self, reported: Task) {
        self.task = Task { id: std::mem::take(&mut self.task.id), ..reported };
    }

    /// Whether another poll may succeed.
    fn is_transient(&self, error: &CallError) -> bool {
        let is_retryable = match error {
            CallError::Transport(_) | CallError::TimedOut { .. } => true,
            CallError::Refused(error) => !is_unknown_task(error),
            _ => false,
        };
        // On a closed transport every further poll would fail at once.
        is_retryable && self.session.incoming.events.close_reason().is_none()
    }

    /// Limits a request about the task to the remaining time.
    fn remaining_options(&self) -> CallOptions {
        CallOptions::within(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Reports a new status message as progress.
    fn report_progress(&mut self) {
        let (Some(on_progress), Some(message)) = (&self.options.on_progress, &self.task.message)
        else {
            return;
        };
        if self.last_message.as_ref() == Some(message) {
            return;
        }
        self.n_messages += 1;
        self.last_message = Some(message.clone());
        on_progress(&Progress {
            token: ProgressToken::Text(self.task.id.clone()),
            // Progress must increase, and a task reports no number, so the count of
            // messages stands in.
            progress: f64::from(self.n_messages),
            total: None,
            message: Some(message.clone()),
        });
    }

    fn cancelled_by_server(&mut self) -> CallError {
        self.is_finished = true;
        let reason = self.task.message.as_deref().unwrap_or("no reason given");
        CallError::TaskCancelled { reason: sanitize_line(reason, REASON_CHARS) }
    }
}

/// Spec 2025-11-25, tasks §Protocol Errors, and the modern extension likewise: the error for an unknown task id. Any
/// other error says nothing about the task.
fn is_unknown_task(error: &JsonRpcError) -> bool {
    ErrorCode(error.code) == ErrorCode::INVALID_PARAMS
}

/// The error of a failed task.
fn task_error(error: Option<&RawValue>) -> CallError {
    match serde_json::from_str::<JsonRpcError>(error.map_or("null", RawValue::get)) {
        Ok(error) => CallError::Refused(error),
        Err(error) => CallError::undecodable(Method::GetTask, error),
    }
}

impl Drop for TaskPoller<'_> {
    /// Spec 2026-07-28, tasks §Cancellation, and 2025-11-25 likewise: cancelling the request does not cancel its
    /// task.
    fn drop(&mut self) {
        let session = self.session;
        // In 2025-11-25 `tasks/cancel` is a capability of its own; the modern extension
        // always has it.
        let can_cancel = session.era() == Era::Modern || session.server.capabilities.tasks().cancel;
        if self.is_finished || !can_cancel || session.stop.is_cancelled() {
            return;
        }
        // A poller may be dropped outside a runtime, where nothing can be sent.
        let Ok(runtime) = Handle::try_current() else { return };
        let (session, id) = (Arc::clone(session), std::mem::take(&mut self.task.id));
        // Tracked apart from the other tasks: `close` waits for these before it stops the session.
        let cancellations = session.task_cancellations.clone();
        let cancelling = async move {
            let options = CallOptions::within(CANCEL_TIMEOUT);
            let sent =
                session.send(&CancelTaskParams { task_id: &id }, &options, WantProgress::No).await;
            if let Err(error) = sent {
                tracing::debug!(%error, "task not cancelled, it may keep running");
            }
        };
        drop(cancellations.spawn_on(cancelling, &runtime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_interval_is_clamped() {
        let check = |value: Option<u64>, expected: u64| {
            let task = Task {
                id: String::new(),
                status: TaskStatus::Working,
                message: None,
                poll_interval: value.map(Duration::from_millis),
            };
            assert_eq!(poll_interval(&task), Duration::from_millis(expected), "{value:?}");
        };
        check(None, 1000);
        check(Some(0), 20);
        check(Some(500), 500);
        check(Some(u64::MAX), 30_000);
    }

    #[test]
    fn failed_task_returns_the_server_error() {
        let value = RawValue::from_string(r#"{"code":-1,"message":"no"}"#.to_owned()).unwrap();
        let refused = task_error(Some(&value));
        assert!(matches!(&refused, CallError::Refused(error) if error.code == -1), "{refused}");
        assert!(matches!(task_error(None), CallError::Undecodable { .. }));
    }
}
