//! MCP as data, for every protocol revision; no IO.
//!
//! Parameters are written, results are read, and both know their method. Schemas, arguments and
//! whatever else is somebody else's business stay raw JSON.
//!
//! **Invariant:** no bytes make a reader panic, and an odd part of a payload never hides the rest.

#![warn(missing_docs)]

mod cache;
mod call;
mod cancel;
mod capability;
mod completion;
mod content;
mod decoration;
mod depth;
mod discover;
mod elicitation;
mod empty;
mod error;
mod error_code;
mod error_detail;
mod form;
mod implementation;
mod initialize;
mod input;
mod lenient;
mod list;
mod listen;
mod log;
mod meta;
mod method;
mod mirror;
mod notification;
mod only_text;
mod page;
mod ping;
mod progress;
mod prompt;
mod request;
mod resource;
mod result_type;
mod revision;
mod role;
mod root;
mod sampling;
mod schema;
mod task;
mod token;
mod tool;

pub use cache::{CacheHint, CacheScope};
pub use call::{Arguments, CallToolParams, ToolCallResult};
pub use cancel::Cancelled;
pub use capability::client::{
    ClientCapabilities, ClientCapabilitiesWire, ElicitationCapability, RootsCapability,
    SamplingCapability,
};
pub use capability::server::{
    ListCapability, ResourcesCapability, ServerCapabilities, TasksCapability,
};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext,
    CompletionRef,
};
pub use content::{Content, Extra};
pub use discover::{DiscoverParams, DiscoverResult};
pub use elicitation::{
    Elicitation, ElicitationAnswer, ElicitationComplete, FormElicitation, UrlElicitation,
};
pub use empty::EmptyResult;
pub use error::DecodeError;
pub use error_code::ErrorCode;
pub use error_detail::{ErrorDetail, MissingCapability, UnsupportedVersion};
pub use form::check::{FieldFault, FieldFaultKind};
pub use form::field::{Choice, Field, FieldKind};
pub use form::format::TextFormat;
pub use form::{FieldValue, FormContent, FormSchema};
pub use implementation::{Implementation, ImplementationWire};
pub use initialize::{InitializeParams, InitializeResult, Initialized};
pub use input::{InputRequest, InputRequired, InputResponse, InputResponses};
pub use list::{
    ListPromptsParams, ListResourceTemplatesParams, ListResourcesParams, ListToolsParams,
};
pub use listen::{ListenParams, SubscriptionAcknowledged, SubscriptionFilter};
pub use log::{LogLevel, LogMessage, SetLevelParams};
pub use meta::{MetaKey, RequestMeta, related_task, subscription_id};
pub use method::{Method, MethodKind, Sender};
pub use mirror::{Mirror, MirrorFault};
pub use notification::{ListKind, ResourceUpdated, ServerNotification};
pub use only_text::OnlyText;
pub use page::{Listed, Page, Skipped};
pub use ping::PingParams;
pub use progress::Progress;
pub use prompt::{GetPromptParams, GetPromptResult, Prompt, PromptArgument, PromptMessage};
pub use request::{Answer, Notification, Request};
pub use resource::contents::{ResourceBody, ResourceContents};
pub use resource::read::{ReadResourceParams, ReadResourceResult};
pub use resource::subscribe::{SubscribeParams, UnsubscribeParams};
pub use resource::{Resource, ResourceTemplate};
pub use result_type::ResultType;
pub use revision::{Era, Revision};
pub use role::Role;
pub use root::{Root, RootFault, RootsListChanged, RootsResult};
pub use sampling::check::{SamplingFault, check_sampling};
pub use sampling::{
    IncludeContext, ModelHint, ModelPreferences, SamplingMessage, SamplingParams, SamplingResult,
    ToolChoice, ToolChoiceMode,
};
pub use schema::{is_object_schema, strict_schema};
pub use task::{
    CancelTaskParams, GetTaskParams, ReportTaskParams, TASKS_EXTENSION, Task, TaskReport,
    TaskResultParams, TaskStatus, TaskWish, UpdateTaskParams,
};
pub use token::Token;
pub use tool::{Tool, ToolAnnotations};
