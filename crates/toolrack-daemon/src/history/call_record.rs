//! One call that is over, as it is remembered and told.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

/// One call that is over. Neither its arguments nor its result are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallRecord {
    /// Tells calls apart, also across restarts.
    pub id: String,
    /// When it was over, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whose call it was, if servers are those of one agent.
    pub agent: Option<String>,
    /// Where to.
    pub server: String,
    /// Which tool, as the server names it.
    pub tool: String,
    /// `done`, `tool_error`, `failed` or `abandoned`.
    #[schema(value_type = String)]
    pub outcome: Cow<'static, str>,
    /// How far it came: `not_sent`, `unknown` or `answered`.
    #[schema(value_type = String)]
    pub delivery: Cow<'static, str>,
    /// From the request to the outcome, in microseconds.
    pub duration_us: u64,
    /// The size of the arguments.
    pub argument_bytes: u64,
    /// The size of the result.
    pub result_bytes: u64,
}
