//! MCP client runtime for agents: many servers, one list of tools, one way to call them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use toolrack::Toolrack;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Must come first: this program runs again as the guardian of each server.
//!     toolrack::init();
//!     agent()
//! }
//!
//! #[tokio::main]
//! async fn agent() -> Result<(), Box<dyn std::error::Error>> {
//!     let rack = Toolrack::open("toolrack.toml").await?;
//!     // A server that `npx` has to install takes a while. Servers that failed say why.
//!     for server in rack.ready(Duration::from_mins(2)).await {
//!         eprintln!("{}: {}", server.name(), server.state());
//!     }
//!     for tool in rack.tools().iter() {
//!         println!("{}", tool.name());
//!     }
//!     let result = rack.call("filesystem_list_directory").args(json!({"path": "."})).send().await?;
//!     println!("{}", result.text());
//!     rack.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! The config file lists the servers. It is watched: servers that are added, changed or removed are connected,
//! reconnected or stopped; the others are not affected.
//!
//! ```toml
//! [[defaults.mcp]]
//! name = "filesystem"
//! transport = "stdio"
//! command = "npx"
//! args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
//! deny = ["write_*"]
//!
//! [[defaults.mcp]]
//! name = "sentry"
//! transport = "http"
//! url = "https://mcp.sentry.io"
//! headers = { Authorization = "Bearer ${SENTRY_TOKEN}" }
//! ```
//!
//! # What to use
//!
//! | you want | type |
//! |---|---|
//! | all servers of a config file, or from code | [`Toolrack`], [`Toolrack::builder`] |
//! | to call a tool | [`Toolrack::call`], [`ToolCall`], [`ToolResult`] |
//! | to answer elicitation, sampling and roots | [`ClientHandler`] |
//! | one server, without a config | [`McpClient`] |
//! | servers that people add, change and remove | [`McpService`], [`LocalService`], [`McpConfig`] |
//! | secrets from your own secrets manager | [`SecretStore`] |
//! | tools for an LLM API | [`to_openai`], [`to_anthropic`] |
//! | tools for an agent framework | [`McpToolAdapter`], [`adapters_of`]; for `rig` the crate `toolrack-rig` |
//!
//! A failed server does not affect the others: [`Toolrack::servers`] has its error, and it is retried with backoff.
//! An error has a [kind](ManagerError::kind), says whether the server [may have acted](ManagerError::delivery), and has
//! its cause as source; [`error_chain`] joins both in one line.
//!
//! # Servers as a service
//!
//! [`LocalService`] keeps servers in a config file, installs packages and stores secrets:
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use serde_json::json;
//! use toolrack::service::{Home, ServiceOptions};
//! use toolrack::{LocalService, McpService};
//!
//! let service = LocalService::open(Home::in_dir("/home/me/.toolrack"), ServiceOptions::default()).await?;
//! for config in service.list() {
//!     service.start(config.id).await?;
//!     println!("{}: {:?}", config.name, service.status(config.id));
//! }
//! if let Some(id) = service.find_tool_provider("git_log") {
//!     println!("{}", service.call_tool(id, "git_log", &json!({"repo_path": "."})).await?);
//! }
//! service.shutdown_all().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The examples of this crate are short and meant to be copied: `single_server`, `many_servers`, `deny_list`,
//! `http_with_token`, `progress_and_cancel` and `handler`; `founding_004` shows the service.
//!
//! # Inside
//!
//! | module | contents |
//! |---|---|
//! | `toolrack` | [`Toolrack`]: tools, calls, events, shutdown |
//! | `builder` | [`ToolrackBuilder`], [`OpenError`] |
//! | `config_source` | config file with the selection of servers |
//! | `llm_tools` | tool definitions for `OpenAI` and Anthropic |
//! | [`auth`], [`client`], [`config`], [`http`], [`manager`], [`mcp`], [`service`], [`stdio`], [`transport`] | the crates below |
//!
//! - This crate makes no decisions: it reads a file, sets up a manager and forwards calls.
//! - Every type in a public signature is exported by this crate.
//! - A config edit affects only the servers it changes.
//! - docs/internal/public-api.txt lists every public item; `cargo xtask public-api` checks it.

#![warn(missing_docs)]

mod builder;
mod config_source;
mod llm_tools;
mod toolrack;

pub use builder::{OpenError, ToolrackBuilder};
pub use llm_tools::{to_anthropic, to_openai};
/// JSON values of arguments and schemas.
pub use serde_json;
pub use toolrack::Toolrack;
pub use toolrack_client::{ClientHandler, McpClient, McpToolDef, McpToolResult};
pub use toolrack_config::McpServerConfig;
pub use toolrack_manager::{
    ConnectionState, Environment, ErrorKind, ManagerError, ManagerEvent, ManagerEvents,
    McpConnection, McpManager, McpToolAdapter, ToolAdapterError, ToolCall, ToolResult,
    ToolWithServer, adapters_of, error_chain,
};
pub use toolrack_service::{LocalService, McpConfig, McpService, McpStatus, SecretStore};
pub use toolrack_stdio::init;

// Modules, one per crate below.

/// Authentication of HTTP servers: OAuth, tokens, token stores.
pub mod auth {
    pub use toolrack_auth::{
        Audience, AuthSettings, AuthorizationResponse, Authorizer, Browser, ClientAuth,
        FileTokenStore, Grant, IdTokenSource, IdentityProvider, LoginFuture, LoginRequest,
        LoginStatus, MemoryTokenStore, Network, PastedRedirect, PreRegisteredClient, PreparedLogin,
        Secret, SigningAlgorithm, StaticBearer, StoreError, StoreLock, StoredCredentials,
        SystemBrowser, TokenStore, UrlOpener, remove_server_tokens,
    };
}

/// Client of one server: connecting, requests, and the handler of server requests.
///
/// A [`ClientHandler`] answers server requests for elicitation, sampling and roots:
///
/// ```
/// use toolrack::mcp::{
///     ClientCapabilities, Elicitation, ElicitationResult, ElicitationCapability, FormContent, LogMessage, Root,
///     RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
/// };
/// use toolrack::serde_json::value::RawValue;
/// use toolrack::client::{ClientHandler, RawServerRequest, SamplingError};
/// use toolrack::transport::{BoxFuture, JsonRpcError};
///
/// struct Handler;
///
/// impl ClientHandler for Handler {
///     fn capabilities(&self) -> ClientCapabilities {
///         ClientCapabilities {
///             roots: Some(RootsCapability::default()),
///             sampling: Some(SamplingCapability::default()),
///             elicitation: Some(ElicitationCapability { form: true, url: true }),
///             ..ClientCapabilities::default()
///         }
///     }
///
///     fn elicit<'a>(&'a self, server: &'a str, request: Elicitation) -> BoxFuture<'a, ElicitationResult> {
///         Box::pin(async move {
///             match request {
///                 Elicitation::Form(form) if form.message == "Go on?" => {
///                     ElicitationResult::Accept { content: Some(FormContent::default()) }
///                 }
///                 // The user must see the server and the URL.
///                 Elicitation::Url(page) => {
///                     println!("{server} asks to open {}", page.url);
///                     ElicitationResult::Decline
///                 }
///                 _ => ElicitationResult::Cancel,
///             }
///         })
///     }
///
///     fn sample<'a>(
///         &'a self,
///         _server: &'a str,
///         params: SamplingParams,
///     ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
///         Box::pin(async move { Err(SamplingError::Failed(format!("no model for {} tokens", params.max_tokens))) })
///     }
///
///     fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
///         Box::pin(async { Root::new("file:///work".into(), None).into_iter().collect() })
///     }
///
///     fn forward_request<'a>(
///         &'a self,
///         _server: &'a str,
///         _request: RawServerRequest<'a>,
///     ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
///         None
///     }
///
///     fn log(&self, message: &LogMessage) {
///         println!("{message:?}");
///     }
/// }
/// ```
pub mod client {
    pub use toolrack_client::{
        CallError, CallOptions, ClientBuilder, ClientHandler, ConnectError, ConnectStep, Connector,
        EraChoice, Event, Events, ForwardedFor, HttpConnector, Limits, List,
        MCP_REQUEST_TIMEOUT_SECS, McpClient, McpToolDef, McpToolResult, NotMcp, OnConnectStep,
        OnProgress, RawServerRequest, SamplingError, StdioConnector, Timeouts, Truncated,
        launcher_name, parse_tool_result, parse_tools_list,
    };
}

/// Config files: parsing, validation, interpolation, diff.
pub mod config {
    pub use toolrack_config::{
        Agent, ConfigDiff, ConfigFile, Diagnostic, DiagnosticKind, Dialect, EnvValue, Fingerprint,
        Lookup, McpServerConfig, McpTransport, Package, PackageKind, Parsed, Pin, Position,
        Resolved, ResolvedTransport, Sandbox, ServerEntry, Settings, Severity, SourceLocation,
        StartMode, ToolNaming, VariableSource, detect, did_you_mean, diff, fingerprint,
        interpolate, is_setting, join, json_schema, key_reference, parse_duration, read, read_as,
        read_server, similar_names, suggest, without_secrets,
    };
}

/// HTTP transport.
pub mod http {
    pub use toolrack_http::{
        HttpOptions, HttpServerDef, HttpTransport, ProxySettings, UnixClient, UnixResponse,
    };
}

/// Manager of all servers behind a [`Toolrack`].
pub mod manager {
    pub use toolrack_manager::{
        CallArguments, CallOutcome, CallTarget, ClientGuard, ConnectPhase, ConnectionState,
        CredentialsProvider, ErrorKind, Failure, FileWatch, FilterRule, Installation,
        ManagerBuilder, ManagerError, ManagerEvent, ManagerEvents, McpConnection, McpManager,
        McpToolAdapter, PackageInstaller, PackageRequest, ParseServers, PreparedServer,
        ToolAdapterError, ToolCall, ToolResult, ToolWithServer, adapters_of, error_chain,
        render_tool_result,
    };
}

/// Protocol types: tools, results, resources, prompts, elicitation, capabilities.
pub mod mcp {
    pub use toolrack_mcp::{
        Arguments, CallToolParams, CancelTaskParams, Cancelled, Choice, ClientCapabilities,
        CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext,
        CompletionRef, Content, DecodeError, DiscoverParams, DiscoverResult, Elicitation,
        ElicitationCapability, ElicitationComplete, ElicitationResult, EmptyResult, Era, ErrorCode,
        Extra, Field, FieldError, FieldErrorKind, FieldKind, FieldValue, FormContent,
        FormElicitation, FormSchema, GetPromptParams, GetPromptResult, GetTaskParams,
        GetTaskReportParams, Implementation, IncludeContext, InitializeParams, InitializeResult,
        InputRequest, InputRequired, InputResponse, InputResponses, ListCapability, ListEntry,
        ListKind, ListPage, ListParams, ListenParams, LogLevel, LogMessage, MetaKey, Method,
        MethodKind, ModelHint, ModelPreferences, ParamHeaders, ParamHeadersError, PingParams,
        Progress, ProgressToken, Prompt, PromptArgument, PromptMessage, ReadResourceParams,
        ReadResourceResult, Request, RequestMeta, RequestResult, Resource, ResourceBody,
        ResourceContents, ResourceTemplate, ResourceUpdated, ResourcesCapability, ResultType,
        Revision, Role, Root, RootError, RootsCapability, RootsResult, SamplingCapability,
        SamplingMessage, SamplingParams, SamplingResult, Sender, ServerCapabilities,
        ServerNotification, SetLevelParams, SingleText, SkippedEntry, StringFormat,
        SubscribeParams, SubscriptionAcknowledged, SubscriptionFilter, TASKS_EXTENSION, Task,
        TaskParams, TaskReport, TaskResultParams, TaskStatus, TasksCapability, Tool,
        ToolAnnotations, ToolCallResult, ToolChoice, ToolChoiceMode, UnsubscribeParams,
        UpdateTaskParams, UrlElicitation, WithInput, check_sampling, is_object_schema,
        related_task, strict_schema, subscription_id,
    };
}

/// Configured servers as a service: add, change, remove, start and stop them, with packages, secrets and logs.
pub mod service {
    pub use toolrack_service::{
        Autostart, ConfigInput, ConfigScope, ConfigStore, Document, ETag, Enabled, Entry,
        EnvVarConfig, ErrorCode, ErrorDetail, FileSecretStore, Home, Installer, InvalidETag,
        LoadError, LocalService, LogKind, LogLine, LogStore, McpConfig, McpPackage, McpPackageType,
        McpService, McpSource, McpStatus, McpTransport, Secret, SecretStore, ServiceError,
        ServiceOptions, SharedLookup, StatusDetail, StoredConfig, ToolCall, ToolCallError, Uuid,
        WatchConfig, validate,
    };
}

/// Stdio transport: server processes and their guardian.
pub mod stdio {
    pub use toolrack_stdio::{
        CleanupCommand, CommandOutput, EnvInheritance, Guardian, Incoming, McpServerDef,
        PreparedGuardian, RunOptions, ShutdownTimeouts, StdioClientTransport, StdioOptions,
        StdioTransport, find_program, init, is_orphaned, kill_orphans, new_process_tag,
        run_command,
    };
}

/// Transports and JSON-RPC: messages, errors, close reasons.
pub mod transport {
    pub use toolrack_transport::{
        AuthChallenge, AuthError, Authorization, Backoff, BoxFuture, CANCELLED, CachedCredential,
        CancelledParams, CloseReason, Credentials, Deadline, Delivery, ExitStatus, InMemoryPeer,
        InMemoryTransport, IncomingHandler, JsonRpcError, JsonRpcNotification, JsonRpcRequest,
        JsonRpcResponse, Message, MessageError, MessageRouter, NoParams, OnCancel, OutgoingRequest,
        Params, PendingRequests, PendingResponse, ProcessExit, ProtocolMode, QueuedRequest,
        RawJson, Redactor, RequestError, RequestId, RequestQueue, RequestTimeout, Response,
        ResponseFuture, ResponseId, Routed, SpawnError, Transport, TransportCounters,
        TransportError, TransportKind, TransportStats, TruncatedMessage, await_response,
        deadline_after, exit_cause, in_memory_pair, is_invisible, sanitize_line, sanitize_text,
        split_batch, write_notification, write_request, write_response, write_string,
    };
}

// End of modules.

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
