//! MCP as data, for every protocol revision; no IO.
//!
//! Parameters are written, results are read, and both know their method. Schemas, arguments and
//! whatever else is somebody else's business stay raw JSON.
//!
//! **Invariant:** no bytes make a reader panic, and an odd part of a payload never hides the rest.

#![warn(missing_docs)]

mod cache_hint;
mod call;
mod client_capabilities;
mod completion;
mod content;
mod discover;
mod elicitation;
mod error;
mod form;
mod initialize;
mod input_required;
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

pub use cache_hint::{CacheHint, CacheScope};
pub use call::OnlyText;
pub use call::{Arguments, CallToolParams, ToolCallResult};
pub use client_capabilities::{
    ClientCapabilities, ClientCapabilitiesWire, ElicitationCapability, RootsCapability,
    SamplingCapability,
};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext,
    CompletionRef,
};
pub use content::Role;
pub use content::{Content, Extra};
pub use discover::{DiscoverParams, DiscoverResult};
pub use elicitation::{
    Elicitation, ElicitationAnswer, ElicitationComplete, FormElicitation, UrlElicitation,
};
pub use error::DecodeError;
pub use error::ErrorCode;
pub use error::{ErrorDetail, MissingCapability, UnsupportedVersion};
pub use form::check::{FieldFault, FieldFaultKind};
pub use form::field::TextFormat;
pub use form::field::{Choice, Field, FieldKind};
pub use form::{FieldValue, FormContent, FormSchema};
pub use initialize::{Implementation, ImplementationWire};
pub use initialize::{InitializeParams, InitializeResult, Initialized};
pub use input_required::{InputRequest, InputRequired, InputResponse, InputResponses};
pub use list_page::{
    ListPromptsParams, ListResourceTemplatesParams, ListResourcesParams, ListToolsParams,
};
pub use list_page::{Listed, Page, Skipped};
pub use logging::{LogLevel, LogMessage, SetLevelParams};
pub use meta::{MetaKey, RequestMeta, related_task, subscription_id};
pub use method::{Method, MethodKind, Sender};
pub use notification::Cancelled;
pub use notification::Progress;
pub use notification::Token;
pub use notification::{ListKind, ResourceUpdated, ServerNotification};
pub use param_headers::{Mirror, MirrorFault};
pub use prompt::{GetPromptParams, GetPromptResult, Prompt, PromptArgument, PromptMessage};
pub use request::EmptyResult;
pub use request::PingParams;
pub use request::{Answer, Notification, Request};
pub use resource::{ReadResourceParams, ReadResourceResult};
pub use resource::{Resource, ResourceTemplate};
pub use resource::{ResourceBody, ResourceContents};
pub use resource::{SubscribeParams, UnsubscribeParams};
pub use result_type::ResultType;
pub use revision::{Era, Revision};
pub use roots::{Root, RootFault, RootsListChanged, RootsResult};
pub use sampling::{
    IncludeContext, ModelHint, ModelPreferences, SamplingMessage, SamplingParams, SamplingResult,
    ToolChoice, ToolChoiceMode,
};
pub use sampling::{SamplingFault, check_sampling};
pub use server_capabilities::{
    ListCapability, ResourcesCapability, ServerCapabilities, TasksCapability,
};
pub use subscriptions_listen::{ListenParams, SubscriptionAcknowledged, SubscriptionFilter};
pub use task::{
    CancelTaskParams, GetTaskParams, ReportTaskParams, TASKS_EXTENSION, Task, TaskReport,
    TaskResultParams, TaskStatus, TaskWish, UpdateTaskParams,
};
pub use tool::{Tool, ToolAnnotations};
pub use tool_schema::{is_object_schema, strict_schema};
