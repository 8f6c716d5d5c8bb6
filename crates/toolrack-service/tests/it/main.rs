//! The service on real files and real processes.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod change;
mod docker;
mod flow;
mod leak;
mod log;
mod mc;
mod packages;
mod packages_npm;
mod packages_stage;
mod secrets;
mod stage;
mod store;
mod store_corrupt;
mod store_crash;
mod store_crowd;
mod store_law;
mod store_person;
mod store_stage;
mod trouble;
