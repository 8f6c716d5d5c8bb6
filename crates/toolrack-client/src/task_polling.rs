//! Calls that a server makes tasks of, followed to their end, so that they look like every other call.
//!
//! In 2025-11-25 some tools can be called in no other way, and we say so with the call. In the modern era the server
//! decides, if both sides have the extension.
//!
//! **Invariant:** a task that is no longer followed has ended, or the server is asked to give it up.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};
use toolrack_mcp::{
    Answer as _, CallToolParams, CancelTaskParams, Era, GetTaskParams, Method, Progress,
    ReportTaskParams, Request, ResultType, TASKS_EXTENSION, Task, TaskResultParams, TaskStatus,
    TaskWish, Token, Tool, UpdateTaskParams,
};
use toolrack_transport::{Delivery, JsonRpcError, RawJson, plain_text};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::pagination::Listing;
use crate::progress::Watch;
use crate::session::{Session, decode};
use crate::timeouts::deadline;

/// How long a server is left alone that does not say how long it wants to be.
const PACE: Duration = Duration::from_secs(1);
/// What a server may say about that.
const PACES: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(30);
/// How often in a row asking may fail. The task goes on meanwhile.
const MOST_FAILURES: u32 = 3;
/// How long a server may take to hear that a task is not wanted any more.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
/// How much of its reason is kept when a server gives a task up.
const REASON_CHARS: usize = 200;

fn pace(task: &Task) -> Duration {
    task.pace.unwrap_or(PACE).clamp(*PACES.start(), *PACES.end())
}

impl Session {
    /// Notes whether any tool can be called as a task only.
    ///
    /// Spec 2025-11-25, tasks §Tool-Level Negotiation: without the capability of the server, what a tool says of
    /// tasks does not count.
    pub(crate) fn note_tasks(&self, listing: &Listing<Tool>) {
        let takes_tasks = self.revision().has_core_tasks() && self.card.capabilities.tasks().calls;
        let any = takes_tasks && listing.items.iter().any(Tool::needs_task);
        self.has_task_tools.store(any, Ordering::Release);
    }

    /// Whether a tool can be called as a task only. Costs one look at a flag, unless there are such tools.
    pub(crate) fn needs_task(&self, tool: &str) -> bool {
        self.has_task_tools.load(Ordering::Acquire)
            && self.kept::<Tool>().items.iter().any(|it| it.name == tool && it.needs_task())
    }

    /// Whether a modern server may make a task of a call.
    fn may_make_tasks(&self) -> bool {
        let offered = &self.card.capabilities.extensions;
        self.era() == Era::Modern && offered.contains_key(TASKS_EXTENSION)
    }

    /// Calls a tool as a task of 2025-11-25.
    pub(crate) async fn call_as_task(
        self: &Arc<Self>,
        params: CallToolParams<'_>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let Some(on_progress) = &options.on_progress else {
            return self.run(&params, options, None).await;
        };
        // Spec 2025-11-25, tasks §Progress: the token of the call is good for as long as the task.
        let watch = self.mailbox.watchers.watch(on_progress);
        watch.beside(self.run(&params, options, Some(&watch))).await
    }

    async fn run(
        self: &Arc<Self>,
        params: &CallToolParams<'_>,
        options: &CallOptions,
        watch: Option<&Watch<'_>>,
    ) -> Result<RawJson, CallError> {
        let at_most = self.patience(options).at_most;
        let ttl = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        let until = deadline(at_most);
        let params = CallToolParams { task: Some(TaskWish { ttl }), ..*params };
        let raw = match watch {
            Some(watch) => self.exchange_seen(&params, options, watch).await?,
            None => self.exchange(&params, options).await?,
        };
        let created = Task::created(raw.as_bytes());
        match created.map_err(|fault| CallError::undecodable(Method::CallTool, fault))? {
            Some(task) => Pursuit::new(self, options, task, until).into_result().await,
            // It was answered at once.
            None => Ok(raw),
        }
    }

    /// Follows the task that a modern server has made of a request.
    pub(crate) async fn follow<P: Request>(
        self: &Arc<Self>,
        raw: RawJson,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        if P::METHOD != Method::CallTool || !self.may_make_tasks() {
            return self.complete(P::METHOD, raw);
        }
        let task = Task::decode(raw.as_bytes());
        let task = task.map_err(|fault| CallError::undecodable(P::METHOD, fault))?;
        let until = deadline(self.patience(options).at_most);
        Pursuit::new(self, options, task, until).into_report().await
    }
}

/// A task that is followed.
struct Pursuit<'a> {
    session: &'a Arc<Session>,
    options: &'a CallOptions,
    task: Task,
    until: Instant,
    /// Nothing more will happen, or the server knows nothing of it.
    is_over: bool,
    /// What the user was told last, and how often.
    shown: Option<String>,
    n_shown: u32,
}

impl<'a> Pursuit<'a> {
    fn new(
        session: &'a Arc<Session>,
        options: &'a CallOptions,
        task: Task,
        until: Instant,
    ) -> Self {
        Self { session, options, task, until, is_over: false, shown: None, n_shown: 0 }
    }

    /// Follows a task of 2025-11-25, whose result is asked for when it is there.
    async fn into_result(mut self) -> Result<RawJson, CallError> {
        let outcome = timeout_at(self.until, self.result()).await;
        self.ended(outcome)
    }

    async fn result(&mut self) -> Result<RawJson, CallError> {
        while self.task.status == TaskStatus::Working {
            self.show();
            sleep(pace(&self.task)).await;
            let told = self.ask(&GetTaskParams { task_id: &self.task.id }).await?;
            self.learn(told);
        }
        if self.task.status == TaskStatus::Cancelled {
            return Err(self.given_up());
        }
        // Spec 2025-11-25, tasks §Input Required Status: what the server asks, it asks while its result is waited
        // for.
        let params = TaskResultParams { task_id: &self.task.id };
        self.session.request(&params, &self.in_time()).await
    }

    /// Follows a task of the modern era, whose report has the result.
    async fn into_report(mut self) -> Result<RawJson, CallError> {
        let outcome = timeout_at(self.until, self.report()).await;
        self.ended(outcome)
    }

    async fn report(&mut self) -> Result<RawJson, CallError> {
        let mut answered = HashSet::new();
        let mut n_rounds = 0;
        // What waits or has ended already is asked about at once.
        let mut is_under_way = self.task.status == TaskStatus::Working;
        loop {
            self.show();
            if is_under_way {
                sleep(pace(&self.task)).await;
            }
            is_under_way = true;
            let report = self.ask(&ReportTaskParams { task_id: &self.task.id }).await?;
            self.learn(report.task);
            match self.task.status {
                TaskStatus::Working => {}
                TaskStatus::Completed => {
                    return Ok(report.result.map_or(RawJson::NULL, RawJson::from));
                }
                TaskStatus::Failed => return Err(refusal(report.error.as_deref())),
                TaskStatus::Cancelled => return Err(self.given_up()),
                TaskStatus::InputRequired => {
                    // Spec 2026-07-28, tasks: a key stands for one question as long as the task lives, and what
                    // was answered may be listed for a while.
                    let mut questions = report.questions;
                    questions.retain(|(key, _)| !answered.contains(key));
                    if questions.is_empty() {
                        continue;
                    }
                    if n_rounds >= self.session.limits.rounds {
                        return Err(CallError::TooManyRounds { rounds: n_rounds });
                    }
                    n_rounds += 1;
                    answered.extend(questions.iter().map(|(key, _)| key.clone()));
                    let input_responses = &self.session.answers(questions).await?;
                    let params = UpdateTaskParams { task_id: &self.task.id, input_responses };
                    self.session.request(&params, &self.in_time()).await?;
                }
            }
        }
    }

    /// Asks how far the task is. One answer that is lost loses no work.
    async fn ask<P: Request + Sync>(&self, params: &P) -> Result<P::Answer, CallError> {
        let mut n_failures = 0;
        loop {
            match self.session.request(params, &self.in_time()).await {
                Ok(raw) => {
                    // The examples of the extension and its text differ in what kind of result this is.
                    let kind = self.session.kind(&raw);
                    if !matches!(kind, ResultType::Complete | ResultType::Task) {
                        let what = format!("unexpected result type {kind:?}");
                        return Err(CallError::unexpected(P::METHOD, what));
                    }
                    return decode::<P>(&raw);
                }
                Err(error) if self.may_pass(&error) && n_failures < MOST_FAILURES => {
                    tracing::debug!(%error, "a task could not be asked about");
                    n_failures += 1;
                    sleep(pace(&self.task)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A task keeps the name under which it began.
    fn learn(&mut self, told: Task) {
        let Task { status, message, pace, .. } = told;
        self.task = Task { id: std::mem::take(&mut self.task.id), status, message, pace };
    }

    /// A task whose result or refusal is there needs not be cancelled.
    fn ended(
        &mut self,
        outcome: Result<Result<RawJson, CallError>, Elapsed>,
    ) -> Result<RawJson, CallError> {
        let outcome = outcome.unwrap_or_else(|_elapsed| Err(self.late()));
        self.is_over |= matches!(outcome, Ok(_) | Err(CallError::Refused(_)));
        outcome
    }

    /// Whether asking again may help.
    fn may_pass(&self, error: &CallError) -> bool {
        let is_passing = matches!(error, CallError::Line(_) | CallError::TimedOut { .. });
        is_passing && self.session.mailbox.bulletin.ending().is_none()
    }

    /// What one request about the task may take of the time that is left.
    fn in_time(&self) -> CallOptions {
        let left = self.until.saturating_duration_since(Instant::now());
        CallOptions { timeout: Some(left), at_most: Some(left), ..CallOptions::default() }
    }

    /// What the server says it does counts as progress.
    fn show(&mut self) {
        let (Some(on_progress), Some(message)) = (&self.options.on_progress, &self.task.message)
        else {
            return;
        };
        if self.shown.as_ref() == Some(message) {
            return;
        }
        self.n_shown += 1;
        self.shown = Some(message.clone());
        on_progress(&Progress {
            token: Token::from(self.task.id.as_str()),
            progress: f64::from(self.n_shown),
            total: None,
            message: Some(message.clone()),
        });
    }

    fn given_up(&mut self) -> CallError {
        self.is_over = true;
        let reason = self.task.message.as_deref().unwrap_or("it does not say why");
        CallError::TaskCancelled { reason: plain_text(reason, REASON_CHARS) }
    }

    fn late(&self) -> CallError {
        let waited = self.session.patience(self.options).at_most;
        CallError::TimedOut { waited, delivery: Delivery::Unknown }
    }
}

/// What a task failed with.
fn refusal(error: Option<&RawValue>) -> CallError {
    match serde_json::from_str::<JsonRpcError>(error.map_or("null", RawValue::get)) {
        Ok(error) => CallError::Refused(error),
        Err(fault) => CallError::undecodable(Method::GetTask, fault),
    }
}

impl Drop for Pursuit<'_> {
    /// Spec 2026-07-28, tasks §Cancellation, and 2025-11-25 likewise: a task is not ended by the cancellation of
    /// its request.
    fn drop(&mut self) {
        let session = self.session;
        let can = session.era() == Era::Modern || session.card.capabilities.tasks().cancel;
        if self.is_over || !can || session.stop.is_cancelled() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (session, id) = (Arc::clone(session), std::mem::take(&mut self.task.id));
        let farewells = session.farewells.clone();
        let telling = async move {
            let options = CallOptions {
                timeout: Some(FAREWELL),
                at_most: Some(FAREWELL),
                ..CallOptions::default()
            };
            let told = session.request(&CancelTaskParams { task_id: &id }, &options).await;
            if let Err(error) = told {
                tracing::debug!(%error, "a task may go on although nobody waits for it");
            }
        };
        drop(farewells.spawn_on(telling, &runtime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_neither_all_the_time_nor_hardly_ever() {
        let check = |said: Option<u64>, expected: u64| {
            let task = Task {
                id: String::new(),
                status: TaskStatus::Working,
                message: None,
                pace: said.map(Duration::from_millis),
            };
            assert_eq!(pace(&task), Duration::from_millis(expected), "{said:?}");
        };
        check(None, 1000);
        check(Some(0), 20);
        check(Some(500), 500);
        check(Some(u64::MAX), 30_000);
    }

    #[test]
    fn a_task_fails_with_the_error_of_the_server() {
        let said = RawValue::from_string(r#"{"code":-1,"message":"no"}"#.to_owned()).unwrap();
        let refused = refusal(Some(&said));
        assert!(matches!(&refused, CallError::Refused(it) if it.code == -1), "{refused}");
        assert!(matches!(refusal(None), CallError::Undecodable { .. }));
    }
}
