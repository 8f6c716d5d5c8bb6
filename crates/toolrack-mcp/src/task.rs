//! Tasks: calls that continue after their request was answered, and are polled until they finish.
//!
//! They are part of 2025-11-25, and an extension of 2026-07-28. Both have the same states with different
//! member names, so both are read into one type.

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::input_required::{InputRequest, InputResponses};
use crate::method::Method;
use crate::request::{EmptyResult, Request, RequestResult};
use crate::serde_lenient::{decode, or_absent, or_default};

/// Identifier of the tasks extension of the modern era.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// Task id.
    #[serde(rename = "taskId")]
    pub id: String,
    /// Status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: TaskStatus,
    /// Status message, for display.
    #[serde(rename = "statusMessage", default, deserialize_with = "or_absent")]
    pub message: Option<String>,
    /// Poll interval that the server requests.
    #[serde(rename = "pollInterval", alias = "pollIntervalMs")]
    #[serde(default, deserialize_with = "millis_or_absent")]
    pub poll_interval: Option<Duration>,
}

/// Status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// In progress. Also stands for an unknown status.
    #[default]
    Working,
    /// Waiting for input.
    InputRequired,
    /// Completed.
    Completed,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// Full report of a modern server about a task.
#[derive(Debug)]
pub struct TaskReport {
    /// The task.
    pub task: Task,
    /// Result as written, once completed.
    pub result: Option<Box<RawValue>>,
    /// Error as written, if failed.
    pub error: Option<Box<RawValue>>,
    /// Input requests by the server's keys.
    pub input_requests: Vec<(String, InputRequest)>,
}

impl TaskStatus {
    /// Whether the task has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl Task {
    /// The task that a 2025-11-25 server created for a call. `None` if it returned a result directly.
    pub fn created(raw: &[u8]) -> Result<Option<Self>, DecodeError> {
        #[derive(Deserialize)]
        struct Created<'a> {
            #[serde(borrow)]
            task: Option<&'a RawValue>,
        }
        let Created { task } = decode(raw)?;
        task.map(|task| Self::decode(task.get().as_bytes())).transpose()
    }
}

impl RequestResult for TaskReport {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome {
            input_requests: Option<IndexMap<String, InputRequest>>,
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
        let input_requests = input_requests.unwrap_or_default().into_iter().collect();
        Ok(Self { task, result, error, input_requests })
    }
}

fn millis_or_absent<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    or_absent(input).map(|millis| millis.map(Duration::from_millis))
}

/// `task` parameter of a 2025-11-25 call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TaskParams {
    /// Time to live in milliseconds.
    pub ttl: u64,
}

macro_rules! about_a_task {
    ($($(#[$what:meta])* $params:ident $method:ident => $answer:ty;)*) => {
        $($(#[$what])*
        #[derive(Debug, Clone, Copy, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $params<'a> {
            /// Task id.
            pub task_id: &'a str,
        }

        impl Request for $params<'_> {
            const METHOD: Method = Method::$method;
            type Result = $answer;

            fn subject(&self) -> Option<&str> {
                Some(self.task_id)
            }
        })*
    };
}

about_a_task! {
    /// `tasks/get` of 2025-11-25: the status.
    GetTaskParams GetTask => Task;
    /// `tasks/get` of the modern extension: the full report.
    GetTaskReportParams GetTask => TaskReport;
    /// `tasks/result`: waits for the result. Only in 2025-11-25.
    TaskResultParams GetTaskPayload => EmptyResult;
    /// `tasks/cancel`.
    CancelTaskParams CancelTask => EmptyResult;
}

/// `tasks/update`: sends input to a modern task.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTaskParams<'a> {
    /// Task id.
    pub task_id: &'a str,
    /// Responses; more may follow later.
    pub input_responses: &'a InputResponses,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(&str, TaskStatus, Option<&str>, Option<u64>)>) {
        let read = Task::decode(json.as_bytes()).ok();
        let actual = read.as_ref().map(|task| {
            let poll_interval = task
                .poll_interval
                .map(|poll_interval| u64::try_from(poll_interval.as_millis()).unwrap());
            (task.id.as_str(), task.status, task.message.as_deref(), poll_interval)
        });
        assert_eq!(actual, expected, "{json}");
    }

    #[test]
    fn both_task_formats_are_read() {
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
    fn malformed_capability_hides_no_other() {
        check(
            r#"{"taskId":"a","status":7,"statusMessage":[],"pollInterval":-1}"#,
            Some(("a", TaskStatus::Working, None, None)),
        );
        check(r#"{"status":"working"}"#, None);
        check(r#"{"taskId":7}"#, None);
    }

    #[test]
    fn server_may_return_a_result_instead_of_a_task() {
        let created =
            |json: &str| Task::created(json.as_bytes()).map(|task| task.map(|task| task.id));
        let task = r#"{"task":{"taskId":"a","status":"working"}}"#;
        assert_eq!(created(task).unwrap().as_deref(), Some("a"));
        assert_eq!(created(r#"{"content":[]}"#).unwrap(), None);
        assert!(created(r#"{"task":{}}"#).is_err());
        assert!(created("[]").is_err());
    }

    /// Formats a report in one line: result, error, keys of input requests.
    #[track_caller]
    fn check_report(status: &str, more: &str, expected: &str) {
        let json = format!(r#"{{"taskId":"a","status":"{status}"{more}}}"#);
        let actual = match TaskReport::decode(json.as_bytes()) {
            Ok(TaskReport { result, error, input_requests, .. }) => {
                let keys: Vec<&str> = input_requests.iter().map(|(key, _)| key.as_str()).collect();
                let raw = |raw: Option<Box<RawValue>>| raw.map(|raw| raw.get().to_owned());
                format!("{:?} {:?} {keys:?}", raw(result), raw(error))
            }
            Err(fault) => fault.to_string(),
        };
        assert_eq!(actual, expected, "{json}");
    }

    #[test]
    fn task_report_matches_its_status() {
        check_report("working", "", "None None []");
        check_report("completed", r#","result":{ }"#, r#"Some("{ }") None []"#);
        check_report("failed", r#","error":{ }"#, r#"None Some("{ }") []"#);
        let asks = r#","inputRequests":{"z":{"method":"roots/list"},"b":{"method":"new/thing"}}"#;
        check_report("input_required", asks, r#"None None ["z", "b"]"#);
        check_report("completed", "", "missing member `result`");
        check_report("failed", "", "missing member `error`");
    }

    #[test]
    fn task_requests_carry_the_task_id() {
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
