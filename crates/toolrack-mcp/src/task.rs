//! Tasks: calls whose work goes on after their request was answered, and which are asked about until they are done.
//!
//! They are part of 2025-11-25, and an extension of 2026-07-28. The two have the same life and other names for some
//! of its members, so both are read into one shape.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::input_required::{InputRequest, InputResponses, Questions};
use crate::method::Method;
use crate::request::EmptyResult;
use crate::request::{Answer, Request};
use crate::serde_lenient::{decode, or_absent, or_default};

/// The extension of the modern era that brings tasks.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A task as its server tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What it is asked about by.
    pub id: String,
    /// How far it is.
    pub status: TaskStatus,
    /// What it does, or why it ended, for people.
    pub message: Option<String>,
    /// How long the server wants to be left alone before it is asked again.
    pub pace: Option<Duration>,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It is being worked on. So is a task of whose status we have never heard.
    #[default]
    Working,
    /// It waits for answers.
    InputRequired,
    /// It is done.
    Completed,
    /// It has come to nothing.
    Failed,
    /// It was given up.
    Cancelled,
}

/// Everything that a modern server tells of a task.
#[derive(Debug)]
pub struct TaskReport {
    /// The task itself.
    pub task: Task,
    /// What it came to, as written, once it is completed.
    pub result: Option<Box<RawValue>>,
    /// Why it failed, as written.
    pub error: Option<Box<RawValue>>,
    /// What it waits for, by the server's keys.
    pub questions: Vec<(String, InputRequest)>,
}

impl TaskStatus {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl Task {
    /// The task that a server of 2025-11-25 made of a call. None if it answered the call itself.
    pub fn created(raw: &[u8]) -> Result<Option<Self>, DecodeError> {
        #[derive(Deserialize)]
        struct Created<'a> {
            #[serde(borrow)]
            task: Option<&'a RawValue>,
        }
        let Created { task } = decode(raw)?;
        task.map(|it| Self::decode(it.get().as_bytes())).transpose()
    }
}

impl Answer for Task {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        decode(raw).map(Members::task)
    }
}

impl Answer for TaskReport {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome<'a> {
            #[serde(borrow)]
            input_requests: Option<Questions<'a>>,
            result: Option<Box<RawValue>>,
            error: Option<Box<RawValue>>,
        }
        let task = Task::decode(raw)?;
        let Outcome { input_requests, result, error } = decode(raw)?;
        let missing = match task.status {
            TaskStatus::Completed if result.is_none() => Some("result"),
            TaskStatus::Failed if error.is_none() => Some("error"),
            _ => None,
        };
        if let Some(member) = missing {
            return Err(DecodeError::Missing { member });
        }
        let questions = input_requests.map(Questions::read).transpose()?.unwrap_or_default();
        Ok(Self { task, result, error, questions })
    }
}

/// The members that both have, under the names of either.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    task_id: String,
    #[serde(default, deserialize_with = "or_default")]
    status: TaskStatus,
    #[serde(default, deserialize_with = "or_absent")]
    status_message: Option<String>,
    #[serde(default, deserialize_with = "or_absent", alias = "pollIntervalMs")]
    poll_interval: Option<u64>,
}

impl Members {
    fn task(self) -> Task {
        Task {
            id: self.task_id,
            status: self.status,
            message: self.status_message,
            pace: self.poll_interval.map(Duration::from_millis),
        }
    }
}

/// What makes a call of 2025-11-25 a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TaskWish {
    /// For how many milliseconds the server should keep it.
    pub ttl: u64,
}

macro_rules! about_a_task {
    ($($(#[$what:meta])* $params:ident $method:ident => $answer:ty;)*) => {
        $($(#[$what])*
        #[derive(Debug, Clone, Copy, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $params<'a> {
            /// Which one.
            pub task_id: &'a str,
        }

        impl Request for $params<'_> {
            const METHOD: Method = Method::$method;
            type Answer = $answer;

            fn subject(&self) -> Option<&str> {
                Some(self.task_id)
            }
        })*
    };
}

about_a_task! {
    /// Asks a server of 2025-11-25 how far a task is.
    GetTaskParams GetTask => Task;
    /// Asks a modern server how far a task is, and for everything about it.
    ReportTaskParams GetTask => TaskReport;
    /// Asks for the result of a task, and waits for it. Only in 2025-11-25.
    TaskResultParams GetTaskPayload => EmptyResult;
    /// Asks that a task be given up.
    CancelTaskParams CancelTask => EmptyResult;
}

/// Brings a modern task what it waits for.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTaskParams<'a> {
    /// Which one.
    pub task_id: &'a str,
    /// Our answers. Some of them may follow later.
    pub input_responses: &'a InputResponses,
}

impl Request for UpdateTaskParams<'_> {
    const METHOD: Method = Method::UpdateTask;
    type Answer = EmptyResult;

    fn subject(&self) -> Option<&str> {
        Some(self.task_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(&str, TaskStatus, Option<&str>, Option<u64>)>) {
        let read = Task::decode(json.as_bytes()).ok();
        let said = read.as_ref().map(|it| {
            let pace = it.pace.map(|it| u64::try_from(it.as_millis()).unwrap());
            (it.id.as_str(), it.status, it.message.as_deref(), pace)
        });
        assert_eq!(said, expected, "{json}");
    }

    #[test]
    fn both_shapes_of_a_task_are_read() {
        check(
            r#"{"taskId":"a","status":"working","statusMessage":"m","createdAt":"x","ttl":1,"pollInterval":5}"#,
            Some(("a", TaskStatus::Working, Some("m"), Some(5))),
        );
        check(
            r#"{"resultType":"task","taskId":"a","status":"input_required","ttlMs":null,"pollIntervalMs":7}"#,
            Some(("a", TaskStatus::InputRequired, None, Some(7))),
        );
        for (name, status) in [
            ("completed", TaskStatus::Completed),
            ("failed", TaskStatus::Failed),
            ("cancelled", TaskStatus::Cancelled),
            ("resting", TaskStatus::Working),
        ] {
            let json = format!(r#"{{"taskId":"a","status":"{name}"}}"#);
            check(&json, Some(("a", status, None, None)));
        }
    }

    #[test]
    fn an_odd_member_hides_no_other() {
        check(
            r#"{"taskId":"a","status":7,"statusMessage":[],"pollInterval":-1}"#,
            Some(("a", TaskStatus::Working, None, None)),
        );
        check(r#"{"status":"working"}"#, None);
        check(r#"{"taskId":7}"#, None);
    }

    #[test]
    fn a_server_may_answer_instead_of_making_a_task() {
        let created = |json: &str| Task::created(json.as_bytes()).map(|it| it.map(|it| it.id));
        let task = r#"{"task":{"taskId":"a","status":"working"}}"#;
        assert_eq!(created(task).unwrap().as_deref(), Some("a"));
        assert_eq!(created(r#"{"content":[]}"#).unwrap(), None);
        assert!(created(r#"{"task":{}}"#).is_err());
        assert!(created("[]").is_err());
    }

    /// Shows a report in one line: result, error, keys of questions.
    #[track_caller]
    fn check_report(status: &str, more: &str, expected: &str) {
        let json = format!(r#"{{"taskId":"a","status":"{status}"{more}}}"#);
        let said = match TaskReport::decode(json.as_bytes()) {
            Ok(TaskReport { result, error, questions, .. }) => {
                let keys: Vec<&str> = questions.iter().map(|(key, _)| key.as_str()).collect();
                let raw = |it: Option<Box<RawValue>>| it.map(|it| it.get().to_owned());
                format!("{:?} {:?} {keys:?}", raw(result), raw(error))
            }
            Err(fault) => fault.to_string(),
        };
        assert_eq!(said, expected, "{json}");
    }

    #[test]
    fn a_report_has_what_its_status_promises() {
        check_report("working", "", "None None []");
        check_report("completed", r#","result":{ }"#, r#"Some("{ }") None []"#);
        check_report("failed", r#","error":{ }"#, r#"None Some("{ }") []"#);
        let asks = r#","inputRequests":{"z":{"method":"roots/list"},"b":{"method":"new/thing"}}"#;
        check_report("input_required", asks, r#"None None ["z", "b"]"#);
        check_report("completed", "", "the payload has no `result`");
        check_report("failed", "", "the payload has no `error`");
    }

    #[test]
    fn what_is_asked_about_a_task_names_it() {
        let written = serde_json::to_string(&GetTaskParams { task_id: "a" }).unwrap();
        assert_eq!(written, r#"{"taskId":"a"}"#);
        let answers = InputResponses::default();
        let update = UpdateTaskParams { task_id: "a", input_responses: &answers };
        assert_eq!(
            serde_json::to_string(&update).unwrap(),
            r#"{"taskId":"a","inputResponses":{}}"#
        );
        assert_eq!(update.subject(), Some("a"));
    }
}
