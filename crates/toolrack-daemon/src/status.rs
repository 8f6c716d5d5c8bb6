//! How a server is, as it is told over HTTP.

use serde::Serialize;
use toolrack_service::{McpStatus, ServiceFault, StatusDetail};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::openapi::StatusDocument;
use crate::process_memory::Census;

/// How a server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusView {
    id: Uuid,
    name: String,
    #[schema(value_type = StatusDocument)]
    pub(crate) status: McpStatus,
    /// What it is doing, in one word.
    phase: String,
    /// Why it does not run, and what to do.
    #[schema(value_type = Option<Object>)]
    problem: Option<ServiceFault>,
    /// How many of its tools are offered.
    n_tools: usize,
    /// How many tools it has, if it was ever asked.
    n_tools_total: Option<usize>,
    /// Milliseconds until it is tried again.
    retry_in_ms: Option<u64>,
    /// Whether it is started again and again.
    is_crash_looping: bool,
    /// Which launch this is, counted from one.
    launch: Option<u64>,
    /// The process below which all of its processes run, if they run on this machine.
    process: Option<u32>,
    /// The memory of all its processes, if they run on this machine.
    memory_bytes: Option<u64>,
}

impl From<StatusDetail> for StatusView {
    fn from(detail: StatusDetail) -> Self {
        let millis = |it: std::time::Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: detail.id,
            name: detail.name,
            status: detail.status,
            phase: detail.phase,
            problem: detail.problem,
            n_tools: detail.n_tools,
            n_tools_total: detail.n_tools_total,
            retry_in_ms: detail.retry_in.map(millis),
            is_crash_looping: detail.is_crash_looping,
            launch: detail.launch,
            process: detail.process,
            memory_bytes: None,
        }
    }
}

impl StatusView {
    /// The same with its memory.
    pub(crate) fn weighed(detail: StatusDetail, census: &Census) -> Self {
        let memory_bytes = detail.process.and_then(|it| census.below(it));
        Self { memory_bytes, ..Self::from(detail) }
    }
}
