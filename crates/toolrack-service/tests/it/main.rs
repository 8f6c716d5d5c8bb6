//! Tests of the service with real files and real processes.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assumption ends the test, in helpers too"
)]

mod config_changes;
mod crash_recovery;
mod docker;
mod document_roundtrip;
mod errors;
mod fixture;
mod own_service;
mod packages;
mod packages_fixture;
mod packages_npm;
mod redaction;
mod secrets;
mod server_logs;
mod spec_004;
mod spec_004_storage;
mod store;
mod store_concurrency;
mod store_concurrent_edits;
mod store_corruption;
mod store_crash;
mod store_fixture;
