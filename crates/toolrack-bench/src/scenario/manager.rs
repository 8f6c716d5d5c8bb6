//! What is measured of the manager: what it adds to a call, and what many servers cost.

mod call;
mod fleet;
mod neighbour;

use std::time::Duration;

use anyhow::bail;
use tokio::time::{sleep, timeout};
use toolrack_manager::McpManager;

use super::Scenario;
use super::stdio::Job;
use crate::clients::ClientName;
use crate::report::Report;

/// Ending many servers may take as long as the slowest of them, and not longer.
const CLOSING: Duration = Duration::from_secs(10);
/// Starting many servers takes no longer.
const STARTING: Duration = Duration::from_secs(10);
const POLLING: Duration = Duration::from_millis(5);

pub(crate) async fn drive(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match (job.scenario, client) {
        (Scenario::RackSequential | Scenario::RackInFlight64, _) => call::drive(client, job).await,
        (Scenario::RackTools, ClientName::Manager) => fleet::tools(job).await,
        (Scenario::RackMemory, ClientName::Manager) => fleet::memory(job).await,
        (Scenario::RackStart, ClientName::Manager) => fleet::start_of_rack(job).await,
        (Scenario::RackStart, ClientName::Rmcp) => fleet::start_of_rmcp(job).await,
        (Scenario::RackNeighbours, ClientName::Manager) => neighbour::drive(job).await,
        (scenario, client) => bail!("{client:?} is not measured in {scenario:?}"),
    }
}

async fn close(manager: McpManager) -> anyhow::Result<()> {
    Ok(timeout(CLOSING, manager.close()).await?)
}

/// Waits until so many servers are connected.
async fn connected(manager: &McpManager, n_servers: usize) -> anyhow::Result<()> {
    let all = async {
        while manager.servers().iter().filter(|server| server.is_connected()).count() < n_servers {
            sleep(POLLING).await;
        }
    };
    Ok(timeout(STARTING, all).await?)
}
