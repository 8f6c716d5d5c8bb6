//! JSON-RPC 2.0 messages and the transport trait of Toolrack, with everything that the transports share.
//!
//! A [`Transport`] sends requests to a server and returns their responses. All other messages go to an
//! [`IncomingHandler`]. The stdio and HTTP transports are crates of their own; this crate has an in-memory one.
//!
//! | module | contents |
//! |---|---|
//! | `transport` | [`Transport`], [`IncomingHandler`], [`OutgoingRequest`], [`ResponseFuture`], cancellation, statistics |
//! | `message` | parses and classifies one message; response fast path; batches; truncated messages |
//! | `encode` | encodes requests, notifications and responses; [`Params`] |
//! | `json_rpc` | owned JSON-RPC types, [`RequestId`], undecoded JSON ([`RawJson`]) |
//! | `message_router` | routes incoming messages to pending requests or to the handler |
//! | `pending_requests` | table of pending requests and their deadlines |
//! | `timeout` | idle and total timeout of a request |
//! | `error` | [`TransportError`], [`SpawnError`], [`RequestError`] with its [`Delivery`] |
//! | `close_reason` | close reason, exit status, likely cause of an exit |
//! | `credentials` | trait for sources of credentials, [`AuthError`] |
//! | `backoff` | exponential backoff with jitter |
//! | `redact` | replaces secrets in the output of servers |
//! | `json_strings` | finds, decodes and rewrites the strings of raw JSON |
//! | `sanitize`, `sanitize_json` | strip ANSI escapes, control characters and invisible characters, from text and from raw JSON |
//! | `in_memory` | in-memory transport |
//!
//! # Invariants
//!
//! - **Invariant:** every request has exactly one outcome, within its timeout.
//!   `late_response_is_discarded_and_cancelled`, `pending_requests_fail_with_the_close_reason`, gate G03.
//! - **Invariant:** nothing a server can write closes a transport. `no_line_panics_or_closes_the_router`,
//!   `unreadable_lines_are_counted_and_reported`.
//! - **Invariant:** `on_close` is called exactly once, and only stderr lines follow it. `close_is_reported_once_and_last`,
//!   `stderr_is_read_to_its_end`. A message that is being delivered while a transport is closed may still arrive; only
//!   the HTTP transport prevents that with a lock.
//! - **Invariant:** an entry of [`PendingRequests`] lives exactly as long as a caller waits for it.
//!   `dropping_the_response_removes_the_entry`, `responses_are_never_crossed`.
//! - **Invariant:** encoding appends one line, or nothing. `messages_are_one_line_each`,
//!   `pretty_printed_params_stay_on_one_line`, `failed_write_leaves_the_buffer_unchanged`.
//! - **Invariant:** the response fast path and the full parser agree on valid responses.
//!   `fast_path_agrees_with_the_parser`.
//! - **Invariant:** no control character of a server reaches a terminal. `control_characters_are_stripped`.
//! - **Invariant:** nothing here knows an MCP method except `notifications/cancelled`, and nothing here does IO. No test;
//!   held by review.
//!
//! # Where to start
//!
//! Read `message.rs`, then `pending_requests.rs`, `transport.rs` and `message_router.rs`.

#![warn(missing_docs)]

mod backoff;
mod close_reason;
mod credentials;
mod encode;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod in_memory;
mod json_rpc;
mod json_strings;
mod message;
mod message_router;
mod pending_requests;
mod redact;
mod sanitize;
mod sanitize_json;
mod timeout;
mod transport;

pub use backoff::Backoff;
pub use close_reason::{CloseReason, ExitStatus, ProcessExit, exit_cause};
pub use credentials::{AuthChallenge, AuthError, Authorization, CachedCredential, Credentials};
pub use encode::{
    NoParams, Params, write_notification, write_request, write_response, write_string,
};
pub use error::{Delivery, RequestError, SpawnError, TransportError};
pub use in_memory::{InMemoryPeer, InMemoryTransport, in_memory_pair};
pub use json_rpc::{
    JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, RawJson, RequestId,
    ResponseId,
};
pub use message::{Message, MessageError, TruncatedMessage, split_batch};
pub use message_router::{MessageRouter, Response, Routed};
pub use pending_requests::{Deadline, PendingRequests, PendingResponse};
pub use redact::Redactor;
pub use sanitize::{is_invisible, sanitize_line, sanitize_text, strip_hidden};
pub use sanitize_json::strip_hidden_json;
pub use timeout::{RequestTimeout, await_response, deadline_after};
pub use transport::{
    BoxFuture, CANCELLED, CancelledParams, IncomingHandler, OnCancel, OutgoingRequest,
    ProtocolMode, QueuedRequest, RequestQueue, ResponseFuture, Transport, TransportCounters,
    TransportKind, TransportStats,
};
