//! MCP message types for every protocol revision; no IO.
//!
//! Parameters are serialized, results are parsed, and both know their method. Schemas, arguments and
//! other foreign JSON stay raw. Start with [`Revision`], [`Method`] and [`Request`].
//!
//! | module | what it holds |
//! |---|---|
//! | `revision`, `method` | revisions and eras; table of all methods |
//! | `request`, `notification`, `meta` | request trait, server notifications, `_meta` |
//! | `initialize`, `discover` | legacy handshake, modern discovery, client and server info |
//! | `client_capabilities`, `server_capabilities` | capabilities per revision |
//! | `tool`, `tool_schema`, `call` | tools, schema repair, `tools/call` |
//! | `content` | content blocks |
//! | `resource`, `prompt`, `completion`, `logging`, `roots` | the other server and client features |
//! | `list_page` | paged lists |
//! | `json_scan` | nesting and soundness of JSON without parsing it |
//! | `input_required`, `elicitation`, `form`, `sampling` | server requests and multi-round-trip results |
//! | `task`, `subscriptions_listen` | tasks, modern subscriptions |
//! | `result_type`, `error` | `resultType`; error codes |
//! | `param_headers` | `x-mcp-header` |
//! | `web_url` | addresses that servers ask people to open |
//! | `serde_lenient` | lenient serde helpers |
//!
//! **Invariant:** no input makes a parser panic. `bytes_do_not_panic`, `json_does_not_panic`,
//! `depth_does_not_exhaust_the_stack`.
//!
//! **Invariant:** a malformed entry is skipped and reported; it never hides the rest.
//! `malformed_entries_are_skipped_and_named`, `valid_entries_survive_in_order_and_byte_for_byte`.
//!
//! **Invariant:** every message matches the official schema of its revision.
//! `everything_we_send_matches_the_official_schema`.

#![warn(missing_docs)]

mod call;
mod client_capabilities;
mod completion;
mod content;
mod discover;
mod elicitation;
mod error;
mod form;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod initialize;
mod input_required;
mod json_scan;
mod list_page;
mod logging;
mod meta;
mod method;
mod notification;
mod param_headers;
mod prompt;
mod request;
mod resource;
mod result_type;
mod revision;
mod roots;
mod sampling;
mod serde_lenient;
mod server_capabilities;
mod subscriptions_listen;
mod task;
mod tool;
mod tool_schema;
mod web_url;

pub use call::{Arguments, CallToolParams, SingleText, ToolCallResult};
pub use client_capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext,
    CompletionRef,
};
pub use content::{Content, Extra, Role};
pub use discover::{DiscoverParams, DiscoverResult};
pub use elicitation::{
    Elicitation, ElicitationComplete, ElicitationResult, FormElicitation, UrlElicitation,
};
pub use error::{DecodeError, ErrorCode};
pub use form::field::{Choice, Field, FieldKind, StringFormat};
pub use form::{FieldError, FieldErrorKind, FieldValue, FormContent, FormSchema};
pub use initialize::{Implementation, InitializeParams, InitializeResult};
pub use input_required::{InputRequest, InputRequired, InputResponse, InputResponses, WithInput};
pub use list_page::{ListEntry, ListPage, ListParams, SkippedEntry, n_skipped};
pub use logging::{LogLevel, LogMessage, SetLevelParams};
pub use meta::{MetaKey, RequestMeta, related_task, subscription_id};
pub use method::{Method, MethodKind, Sender};
pub use notification::{
    Cancelled, ListKind, Progress, ProgressToken, ResourceUpdated, ServerNotification,
};
pub use param_headers::{ParamHeaders, ParamHeadersError};
pub use prompt::{GetPromptParams, GetPromptResult, Prompt, PromptArgument, PromptMessage};
pub use request::{EmptyResult, PingParams, Request, RequestResult};
pub use resource::{
    ReadResourceParams, ReadResourceResult, Resource, ResourceBody, ResourceContents,
    ResourceTemplate, SubscribeParams, UnsubscribeParams,
};
pub use result_type::ResultType;
pub use revision::{Era, Revision};
pub use roots::{Root, RootError, RootsResult};
pub use sampling::{
    IncludeContext, ModelHint, ModelPreferences, SamplingMessage, SamplingParams, SamplingResult,
    ToolChoice, ToolChoiceMode, check_sampling,
};
pub use server_capabilities::{
    ListCapability, ResourcesCapability, ServerCapabilities, TasksCapability,
};
pub use subscriptions_listen::{ListenParams, SubscriptionAcknowledged, SubscriptionFilter};
pub use task::{
    CancelTaskParams, GetTaskParams, GetTaskReportParams, TASKS_EXTENSION, Task, TaskParams,
    TaskReport, TaskResultParams, TaskStatus, UpdateTaskParams,
};
pub use tool::{Tool, ToolAnnotations};
pub use tool_schema::{is_object_schema, object_members, strict_schema};
pub use web_url::{WebUrl, WebUrlError};
