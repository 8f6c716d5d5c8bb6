//! What legacy servers ask of us while they work, each answered by a task of its own.
//!
//! **Invariant:** every request that was taken gets exactly one answer, unless the server withdraws it:
//! then it gets none.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use toolrack_mcp::{
    EmptyResult, ErrorCode, InputRequest, InputResponse, MetaKey, Method, related_task,
};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::handler::RawQuestion;
use crate::incoming::Question;
use crate::server_request_handler::{Unanswered, is_human};
use crate::session::Session;
use crate::timeouts::Limits;

/// What a server is told that asks too much at once. Outside the codes that the protocol gives a meaning.
const BUSY: i64 = -32000;

/// The requests of the server that are being answered.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    open: Vec<Open>,
    work: JoinSet<Outcome>,
}

/// What a finished task leaves behind.
pub(crate) type Finished = Result<(Id, Outcome), JoinError>;

type Outcome = Result<InputResponse, JsonRpcError>;

#[derive(Debug)]
struct Open {
    id: RequestId,
    task: AbortHandle,
    pace: Pace,
    /// What the server says of the task that it belongs to.
    related: Option<Box<RawValue>>,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The user or a model.
    Human,
    /// We ourselves.
    Machine,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// Answered on the spot.
    Ping,
    /// Given to a task.
    Work(Pace),
    /// There is too much to do.
    Busy,
    /// There is no such thing.
    Unknown,
}

fn admit(method: &str, n_open: usize, n_human: usize, limits: &Limits) -> Admission {
    match Method::parse(method) {
        Some(Method::Ping) => Admission::Ping,
        Some(Method::ListRoots | Method::CreateMessage | Method::Elicit) => {
            let pace = if is_human(method) { Pace::Human } else { Pace::Machine };
            let crowded = pace == Pace::Human && n_human >= limits.human_questions;
            if n_open >= limits.questions || crowded {
                return Admission::Busy;
            }
            Admission::Work(pace)
        }
        _ => Admission::Unknown,
    }
}

impl Desk {
    /// Takes what has come in. Never waits.
    pub(crate) fn take(&mut self, session: &Arc<Session>, question: Question) {
        match question {
            Question::Asked { id, method, params, about } => {
                self.asked(session, id, (method, params), about);
            }
            Question::Withdrawn(id) => self.withdrawn(&id),
        }
    }

    fn asked(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params): (String, Option<RawJson>),
        about: Option<u64>,
    ) {
        match admit(&method, self.open.len(), self.n_human(), &session.limits) {
            Admission::Ping => session.respond(&id, Ok(EmptyResult {})),
            Admission::Work(pace) => self.begin(session, id, (method, params, about), pace),
            Admission::Busy => refuse(session, &id, BUSY, "too many requests at once"),
            Admission::Unknown => {
                refuse(session, &id, ErrorCode::METHOD_NOT_FOUND.0, "Method not found");
            }
        }
    }

    fn begin(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params, about): (String, Option<RawJson>, Option<u64>),
        pace: Pace,
    ) {
        let core_tasks = session.revision().has_core_tasks();
        let related =
            params.as_ref().filter(|_| core_tasks).and_then(|it| related_task(it.as_bytes()));
        let session = Arc::clone(session);
        let task = self.work.spawn(async move {
            let question = RawQuestion { method: &method, params: params.as_ref(), about };
            let respondent = &session.respondent;
            if let Some(passed_on) = respondent.pass_on(question) {
                return passed_on.await.map(InputResponse::Raw);
            }
            let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
            let question = InputRequest::parse(&method, params).map_err(|fault| {
                JsonRpcError::new(ErrorCode::INVALID_PARAMS.0, fault.to_string())
            })?;
            let answer = respondent.answer(&session.mailbox, question).await;
            answer.map_err(|unanswered| unanswered.to_error())
        });
        self.open.push(Open { id, task, pace, related });
    }

    /// Spec 2025-11-25, cancellation §Behavior Requirements: stop, and do not answer.
    fn withdrawn(&mut self, id: &RequestId) {
        let Some(place) = self.open.iter().position(|it| it.id == *id) else { return };
        self.open.swap_remove(place).task.abort();
    }

    /// The next task that has come to its end; none if none is running.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Finished> {
        self.work.join_next_with_id().await
    }

    /// Whether a task is running.
    pub(crate) fn is_busy(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether the user or a model is being waited for.
    pub(crate) fn waits_for_human(&self) -> bool {
        self.n_human() > 0
    }

    /// Sends the answer that a task has found. A task that was withdrawn has none.
    pub(crate) fn finish(&mut self, session: &Session, finished: Finished) {
        let (task, outcome) = match finished {
            Ok(finished) => finished,
            Err(crash) => {
                let unanswered = Unanswered::Failed("the question could not be asked".to_owned());
                (crash.id(), Err(unanswered.to_error()))
            }
        };
        let Some(place) = self.open.iter().position(|it| it.task.id() == task) else { return };
        let open = self.open.swap_remove(place);
        match open.related {
            Some(related) => {
                session.respond(&open.id, outcome.and_then(|it| of_task(&it, &related)));
            }
            None => session.respond(&open.id, outcome),
        }
    }

    /// Ends every task and waits until they have ended.
    pub(crate) async fn clear(&mut self) {
        self.open.clear();
        self.work.shutdown().await;
    }

    fn n_human(&self) -> usize {
        self.open.iter().filter(|it| it.pace == Pace::Human).count()
    }
}

/// Spec 2025-11-25, tasks §Associating Task-Related Messages: an answer names the task that its question belongs to.
fn of_task(answer: &InputResponse, related: &RawValue) -> Result<Value, JsonRpcError> {
    let written = serde_json::to_value(answer).and_then(|mut answer| {
        let members = answer.as_object_mut();
        let meta = members.map(|it| it.entry("_meta").or_insert_with(|| json!({})));
        if let Some(meta) = meta.and_then(Value::as_object_mut) {
            meta.insert(MetaKey::RELATED_TASK.to_owned(), serde_json::from_str(related.get())?);
        }
        Ok(answer)
    });
    written.map_err(|fault| JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, fault.to_string()))
}

fn refuse(session: &Session, id: &RequestId, code: i64, message: &str) {
    session.respond::<EmptyResult>(id, Err(JsonRpcError::new(code, message)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, n_open: usize, n_human: usize, expected: Admission) {
        let limits = Limits { questions: 4, human_questions: 2, ..Limits::default() };
        assert_eq!(
            admit(method, n_open, n_human, &limits),
            expected,
            "{method} {n_open} {n_human}"
        );
    }

    #[test]
    fn questions_are_admitted_within_limits() {
        check("ping", 4, 2, Admission::Ping);
        check("roots/list", 3, 2, Admission::Work(Pace::Machine));
        check("roots/list", 4, 0, Admission::Busy);
        check("elicitation/create", 3, 1, Admission::Work(Pace::Human));
        check("elicitation/create", 3, 2, Admission::Busy);
        check("sampling/createMessage", 2, 2, Admission::Busy);
        check("tools/list", 0, 0, Admission::Unknown);
        check("tasks/get", 0, 0, Admission::Unknown);
        check("made/up", 4, 0, Admission::Unknown);
    }
}
