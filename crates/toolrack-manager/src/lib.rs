//! Manager of many MCP servers, with one list of all their tools.
//!
//! Starts and supervises servers, reconnects them, filters and names their tools, and routes calls by tool name.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use serde_json::json;
//! use toolrack_config::McpServerConfig;
//! use toolrack_manager::McpManager;
//!
//! let demo = McpServerConfig::stdio("demo", "demo-server", &[]);
//! let manager = McpManager::new(vec![demo]);
//! manager.connect_all().await?;
//! let result = manager.call("demo_greet").args(json!({"name": "World"})).send().await?;
//! assert!(!result.is_error());
//! manager.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! One supervisor task owns all servers. Commands reach it through a queue, connection tasks report to it through
//! another, and it publishes an immutable snapshot after every change. Reads and calls use the latest snapshot and go
//! straight to their server; a call waits only if its server has to be started first.
//!
//! | module | holds |
//! |---|---|
//! | `manager`, `builder` | [`McpManager`]: connect, disconnect, wait, list; [`ManagerBuilder`]: settings |
//! | `call` | tool calls, retries, and the text of results |
//! | `retry_policy` | whether a call is sent, waits, is retried or rejected |
//! | `supervisor` | the task that owns all servers and publishes snapshots |
//! | `lifecycle` | state machine of one server, [`ConnectionState`]: starts, backoff, crash loops |
//! | `connection_task` | one launch of a server, from its start until no process is left |
//! | `connector` | from config to transport; [`PackageInstaller`] hook; closing of transports |
//! | `redacting_transport` | removes secrets from everything a server sends |
//! | `in_flight` | in-flight counter for idle shutdown; [`ClientGuard`] |
//! | `snapshot` | [`McpConnection`], the tool index, and the resolution of tool names |
//! | `server_tools`, `tool_filter` | tools of one server, `allow` and `deny` patterns, refresh of lists |
//! | `tool_adapter` | [`McpToolAdapter`]: one tool for the tool trait of an agent framework |
//! | `tool_names` | public tool names and their reservations |
//! | `tool_cache` | tools on disk, so that they are listed before their server runs |
//! | `config_watcher` | applies changes of a config file |
//! | `look_alikes` | tools of different servers whose names look the same |
//! | `events`, `rate_limit` | [`ManagerEvent`] for subscribers; rate limiter for noisy servers |
//! | `telemetry` | tracing span and events of a call |
//! | `environment` | [`Environment`]: variables and files for `${…}` |
//! | `withheld_variables` | hint for a server that lacks a variable of ours |
//! | `error` | [`ManagerError`], [`Failure`] and its kinds |
//!
//! Start with `lifecycle` (what happens to a server), then `supervisor` (who acts on it), then `call` and
//! `retry_policy` (what happens to a call).
//!
//! # States
//!
//! | state | left when |
//! |---|---|
//! | `Disabled` | the config enables the server |
//! | `Disconnected` | the user starts it, or a call does, unless the user stopped it |
//! | `Connecting` | it connects, fails or is stopped; a second launch waits for the end of the first |
//! | `Connected` | it is lost, stopped, idle for `idle`, or its transport changes |
//! | `NeedsAuth` | the user starts it after a login |
//! | `Failed`, `BackingOff` | the backoff ends, or the user starts it |
//!
//! # Invariants
//!
//! Each is followed by the tests that hold it.
//!
//! - **Invariant:** a server has at most one process tree at a time, and none while it is not wanted.
//!   `every_schedule_holds_the_invariants` (20 000 random schedules), `rapid_stop_and_start_leave_at_most_one_process`,
//!   `stopped_server_ignores_late_events`.
//! - **Invariant:** reports of an old launch have no effect, and a launch that ends without a report counts as lost.
//!   `events_of_an_old_launch_are_ignored`, `launch_that_ends_without_report_is_lost`.
//! - **Invariant:** however many requests find an HTTP server unreachable, that is one loss of their connection, and of
//!   no other. `concurrent_failures_are_one_loss_and_the_server_reconnects`,
//!   `old_connection_does_not_close_the_next_one`, `repeated_loss_reports_count_once`.
//! - **Invariant:** calls in flight when a server is lost may finish, unless the user wants it gone.
//!   `calls_in_flight_finish_when_new_ones_find_the_server_unreachable`, `stop_cancels_the_calls_of_a_lost_server`,
//!   `user_request_ends_a_closing_launch`.
//! - **Invariant:** a broken, slow or noisy server does not delay the others.
//!   `broken_server_does_not_block_the_others`, `eighty_servers_connect_beside_twenty_broken_ones`,
//!   `flooding_server_does_not_fail_the_others`.
//! - **Invariant:** restarts follow the backoff, and do not stop while the server is wanted.
//!   `crash_loop_is_bounded_and_recovers_within_a_minute`, `five_starts_in_a_minute_are_a_crash_loop`.
//! - **Invariant:** every call has one outcome and its waits end. A call that may have reached its server is sent again
//!   only if the config says that the tool is repeatable. `decision_follows_availability`,
//!   `only_unsent_or_repeatable_calls_are_retried`, `lost_call_is_retried_only_if_repeatable`.
//! - **Invariant:** a change is published before its caller gets a reply.
//!   `rapid_stop_and_start_leave_at_most_one_process` and its neighbours read the state at once.
//! - **Invariant:** public names are one to one, and depend only on the set of names and on earlier reservations.
//!   `mapping_is_one_to_one_and_stable`, `unrelated_tool_changes_no_name`.
//! - **Invariant:** no server gets a name that could mean a tool of another configured server, and a name does not move
//!   between servers. `name_with_the_prefix_of_another_server_is_not_assigned`,
//!   `name_that_two_servers_could_own_is_ambiguous`, `name_stays_with_its_server`.
//! - **Invariant:** a denied tool is not listed, and a call to it fails with the rule that denies it.
//!   `rejected_calls_say_why`, `only_offered_and_allowed_tools_are_listed`.
//! - **Invariant:** a connection in use is not closed as idle.
//!   `closed_counter_admits_no_user_and_used_counter_is_not_closed`, `idle_server_is_stopped_and_busy_one_is_not`.
//! - **Invariant:** a config change touches only the servers that changed, and an invalid file changes nothing.
//!   `reconcile_touches_only_changed_servers`, `invalid_edit_is_rejected_and_reported`.
//! - **Invariant:** a cache file that is missing, too large or broken counts as absent. `broken_files_count_as_absent`.
//! - **Invariant:** emitting an event never waits, a call that starts also finishes, and no argument or result is
//!   recorded. `slow_subscriber_gets_the_number_of_lost_events`,
//!   `call_events_have_sizes_and_outcomes_and_no_arguments`, `call_span_has_name_and_attributes_and_no_arguments`.
//! - **Invariant:** text for agents is within its limit and contains no terminal escape sequences.
//!   `truncated_text_is_within_the_limit`, `text_is_joined_and_other_blocks_are_placeholders`.

#![warn(missing_docs)]

mod builder;
mod call;
mod config_watcher;
mod connection_task;
mod connector;
mod environment;
mod error;
mod events;
mod in_flight;
mod lifecycle;
mod look_alikes;
mod manager;
mod rate_limit;
mod redacting_transport;
mod retry_policy;
mod server_tools;
mod snapshot;
mod supervisor;
mod telemetry;
mod tool_adapter;
mod tool_cache;
mod tool_filter;
mod tool_names;
mod withheld_variables;

pub use builder::ManagerBuilder;
pub use call::{CallArguments, CallTarget, ToolCall, ToolResult, render_tool_result};
pub use config_watcher::{FileWatch, ParseServers};
pub use connector::{Installation, PackageInstaller, PackageRequest, PreparedServer};
pub use environment::Environment;
pub use error::{ErrorKind, Failure, ManagerError, error_chain};
pub use events::{CallOutcome, ManagerEvent, ManagerEvents};
pub use in_flight::ClientGuard;
pub use lifecycle::{ConnectPhase, ConnectionState};
pub use look_alikes::look_alikes;
pub use manager::{CredentialsProvider, McpManager, Reconciliation};
pub use server_tools::ToolWithServer;
pub use snapshot::McpConnection;
pub use tool_adapter::{McpToolAdapter, ToolAdapterError, adapters_of};
pub use tool_filter::FilterRule;
