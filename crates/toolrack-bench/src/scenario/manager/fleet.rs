//! A hundred servers: one list of their tools, the memory of each, and starting them all.

use anyhow::ensure;
use tokio::task::JoinSet;
use tokio::time::sleep;
use toolrack_config::{McpServerConfig, StartMode};
use toolrack_manager::ToolWithServer;

use super::{close, connected};
use crate::clients::toolrack_manager::{builder, configs, connect_all};
use crate::clients::{Contender as _, Rmcp};
use crate::report::{Metric, Report};
use crate::scenario::measure::{self, Spent, count};
use crate::scenario::stdio::{self, Job, SETTLING};
use crate::server::responses;
use crate::stats::{median, quantile};
use crate::{clock, resource_usage};

const N_SERVERS: usize = 100;
/// Servers that are there before memory is looked at, so that what there is once for all has been paid for.
const N_FIRST: usize = 20;
/// How often the list is taken.
const N_LISTS: usize = 1_000;
/// Starts of all servers, of which the first pays for what is lazy and is not counted.
const N_STARTS: usize = 3;

pub(super) async fn tools(job: &Job) -> anyhow::Result<Report> {
    let catalog = tempfile::tempdir()?;
    let configs = configs(&job.server, 0..N_SERVERS)?;
    let manager = builder().catalog(catalog.path()).build(configs.clone());
    connect_all(&manager).await?;
    let n_tools = N_SERVERS * job.scenario.n_tools();
    let (mut taken, mut read) = (Vec::new(), Vec::new());
    for _ in 0..N_LISTS {
        let before = clock::now();
        let tools = manager.all_tools();
        taken.push((clock::now() - before).as_secs_f64() * 1e6);
        let bytes: usize = tools.iter().map(seen_bytes).sum();
        read.push((clock::now() - before).as_secs_f64() * 1e6);
        ensure!(tools.len() == n_tools && bytes > n_tools, "{} tools", tools.len());
    }
    close(manager).await?;
    let mut report = Report::new();
    if let (Some(p50), Some(p99), Some(read)) =
        (median(&taken), quantile(&taken, 0.99), median(&read))
    {
        report.insert(Metric::AllToolsMicros, p50);
        report.insert(Metric::AllToolsP99Micros, p99);
        report.insert(Metric::ReadToolsMicros, read);
    }
    let lazy = |value| McpServerConfig { start: StartMode::Lazy, ..value };
    let lazy: Vec<McpServerConfig> = configs.into_iter().map(lazy).collect();
    let before = clock::now();
    let manager = builder().catalog(catalog.path()).build(lazy);
    manager.connect_all().await?;
    let n_recalled = manager.all_tools().len();
    report.insert(Metric::RecallMillis, (clock::now() - before).as_secs_f64() * 1e3);
    ensure!(n_recalled == n_tools, "{n_recalled} tools are remembered");
    close(manager).await?;
    Ok(report)
}

/// What an agent shows to its model.
fn seen_bytes(listed: &ToolWithServer) -> usize {
    let tool = listed.tool();
    let description = tool.description.as_ref().map_or(0, String::len);
    listed.name().len() + description + tool.input_schema.get().len()
}

/// Each server has its guardian. The first ones pay for what there is once for all.
pub(super) async fn memory(job: &Job) -> anyhow::Result<Report> {
    let manager = builder().build(configs(&job.server, 0..N_FIRST)?);
    connect_all(&manager).await?;
    sleep(SETTLING).await;
    let before = resource_usage::Memory::of_this_process()?;
    manager.reconcile(&[], &configs(&job.server, N_FIRST..N_FIRST + N_SERVERS)?).await?;
    connected(&manager, N_FIRST + N_SERVERS).await?;
    sleep(SETTLING).await;
    let mut report = measure::idle_lines(before, N_SERVERS)?;
    close(manager).await?;
    let list = count(responses::tool_list(job.scenario.n_tools()).len()) / 1024.0;
    report.insert(Metric::ListKibPerServer, list);
    if let Some(resident) = report.get(&Metric::ResidentKibPerLine).copied() {
        report.insert(Metric::BeyondListKibPerServer, resident - list);
    }
    Ok(report)
}

/// Each server has its guardian, and its tools are listed.
pub(super) async fn start_of_rack(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let configs = configs(&job.server, 0..N_SERVERS)?;
        let spent = Spent::start();
        let manager = builder().build(configs);
        connect_all(&manager).await?;
        if n > 0 {
            times.push(spent.so_far());
        }
        close(manager).await?;
    }
    measure::connects(&times)
}

/// Nobody stands between client and server, and nothing is listed.
pub(super) async fn start_of_rmcp(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let spent = Spent::start();
        let mut starting = JoinSet::new();
        for _ in 0..N_SERVERS {
            let server = job.server.clone();
            starting.spawn(async move { Rmcp::connect(&server).await });
        }
        let mut clients = Vec::new();
        while let Some(client) = starting.join_next().await {
            clients.push(client??);
        }
        if n > 0 {
            times.push(spent.so_far());
        }
        for client in clients {
            stdio::close(client).await?;
        }
    }
    measure::connects(&times)
}
