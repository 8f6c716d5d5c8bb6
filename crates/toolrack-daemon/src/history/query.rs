//! What can be asked of the history, and what is answered.

use serde::Serialize;
use utoipa::ToSchema;

use super::call_record::CallRecord;

/// Which calls to look up, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Of this server.
    pub server: Option<String>,
    /// Of this tool, as its server names it.
    pub tool: Option<String>,
    /// With this outcome: `done`, `tool_error`, `failed` or `abandoned`.
    pub outcome: Option<String>,
    /// With any outcome but `done`.
    pub is_unsuccessful: bool,
    /// Not older than this, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Only what stands before this place, where the page before ended.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// A page of calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) calls: Vec<CallRecord>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<i64>,
}

/// How long the latest calls of a tool took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// Which server.
    pub(crate) server: String,
    /// Which tool; absent for all tools of the server together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// How many calls were looked at.
    pub(crate) n_calls: u64,
    /// How many of them had no result, or one that says the tool failed.
    pub(crate) n_failed: u64,
    /// Half of the calls were at most this long, in microseconds.
    pub(crate) p50_us: u64,
    /// Nine of ten were.
    pub(crate) p90_us: u64,
    /// Ninety-nine of a hundred were.
    pub(crate) p99_us: u64,
    /// The longest.
    pub(crate) max_us: u64,
}

impl Latency {
    /// Of at least one call.
    pub(crate) fn of(
        server: String,
        tool: Option<String>,
        mut durations: Vec<u64>,
        n_failed: u64,
    ) -> Self {
        durations.sort_unstable();
        let at = |percent: usize| percentile(&durations, percent);
        let n_calls = durations.len() as u64;
        let (p50_us, p90_us, p99_us, max_us) = (at(50), at(90), at(99), at(100));
        Self { server, tool, n_calls, n_failed, p50_us, p90_us, p99_us, max_us }
    }
}

/// The nearest rank: the smallest value that so many percent do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let check = |durations: Vec<u64>, expected: (u64, u64, u64, u64)| {
            let it = Latency::of("s".to_owned(), None, durations, 0);
            assert_eq!((it.p50_us, it.p90_us, it.p99_us, it.max_us), expected);
        };
        check((1..=100).rev().collect(), (50, 90, 99, 100));
        check(vec![7], (7, 7, 7, 7));
        check(vec![9, 1], (1, 9, 9, 9));
        check(Vec::new(), (0, 0, 0, 0));
    }
}
