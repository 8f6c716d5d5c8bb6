//! Health check of a server: starts it, counts its tools and processes, and stops it again.
//!
//! The processes of a server are the descendants of its guardian: a child of this process, or a
//! process that the daemon names.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::TargetOptions;
use crate::args::tools::RequestOptions;
use crate::context::Context;
use crate::error::CliError;
use crate::server_selection::{Servers, Warnings};
use crate::server_session::{ServerSession, with_session};

/// Result of a successful check.
#[derive(Debug)]
pub(crate) struct ServerCheck {
    pub(crate) n_tools: usize,
    pub(crate) n_tools_total: usize,
    pub(crate) revision: String,
    pub(crate) duration: Duration,
    pub(crate) processes: Vec<Process>,
}

impl ServerCheck {
    /// One line, to follow the name of the server.
    pub(crate) fn describe(&self) -> String {
        let duration = self.duration.as_millis();
        format!("{}, protocol {}, ready in {duration} ms", self.tools(), self.revision)
    }

    /// Number of tools, and how many of them the allow and deny rules let through.
    fn tools(&self) -> String {
        match (self.n_tools, self.n_tools_total) {
            (1, 1) => "1 tool".to_owned(),
            (offered, total) if offered == total => format!("{total} tools"),
            (offered, total) => format!("{offered} of {total} tools"),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "n_tools": self.n_tools,
            "n_tools_total": self.n_tools_total,
            "revision": self.revision,
            "ready_ms": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            "processes": self.processes.iter().map(Process::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Starts or connects to a configured server, checks it, and stops it.
pub(crate) async fn check_server(name: &str, context: &Context) -> Result<ServerCheck, CliError> {
    // Warnings about the config file have been printed by the command.
    let servers =
        Servers::select(&TargetOptions::default(), Warnings::None, context)?.only(name)?;
    let started = Instant::now();
    // Checked separately from the instance that the daemon may run.
    let context = &context.without_daemon();
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let connection = session.connect(name).await?;
        let revision = connection.client().map(|client| client.revision().to_string());
        Ok(ServerCheck {
            n_tools: connection.n_tools(),
            n_tools_total: connection.tool_list().map_or(0, |listing| listing.items.len()),
            revision: revision.unwrap_or_default(),
            duration: started.elapsed(),
            processes: own_processes(),
        })
    })
    .await
}

/// A process, from `/proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
}

impl Process {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "pid": self.pid,
            "parent": self.parent,
            "name": self.name,
            "memory_bytes": self.memory_bytes,
        })
    }
}

/// Processes of the servers that this program runs, sorted by PID.
fn own_processes() -> Vec<Process> {
    let own = std::process::id();
    let mut found = ProcessTable::read().descendants(own);
    // The children of this process are the guardians, which adopt what a server leaves behind.
    found.retain(|process| process.parent != own);
    found
}

/// All processes of this machine.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable(Vec<Process>);

impl ProcessTable {
    /// Reads `/proc` once.
    pub(crate) fn read() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self::default() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(read_process).collect())
    }

    /// All descendants of a process, sorted by PID.
    pub(crate) fn descendants(&self, root: u32) -> Vec<Process> {
        let mut found: Vec<Process> = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            for child in self.0.iter().filter(|process| process.parent == parent) {
                // A PID that is reused during the scan could close a cycle.
                if child.pid != root && found.iter().all(|process| process.pid != child.pid) {
                    parents.push(child.pid);
                    found.push(child.clone());
                }
            }
        }
        found.sort_unstable_by_key(|process| process.pid);
        found
    }
}

/// The PIDs and their total memory.
pub(crate) fn summarize_processes(processes: &[Process]) -> String {
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    let bytes: u64 = processes.iter().map(|process| process.memory_bytes).sum();
    match pids.as_slice() {
        [] => String::new(),
        pids => format!("{} ({:.1} MiB)", pids.join(" "), mebibytes(bytes)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn read_process(pid: u32) -> Option<Process> {
    let (name, parent) = name_and_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Process { pid, parent, name, memory_bytes: pages * page_bytes })
}

/// The process name is in parentheses and may itself contain some.
fn name_and_parent(stat: &str) -> Option<(String, u32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_may_contain_parentheses() {
        assert_eq!(name_and_parent("77 (a) b) S 12 77"), Some(("a) b".to_owned(), 12)));
        assert_eq!(name_and_parent("nonsense"), None);
    }

    #[test]
    fn all_descendants_are_found() {
        let process = |(pid, parent)| Process { pid, parent, name: String::new(), memory_bytes: 0 };
        let process_table = ProcessTable([(7, 1), (9, 7), (8, 9), (5, 1)].map(process).into());
        let pids: Vec<u32> =
            process_table.descendants(7).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [8, 9]);
        assert_eq!(process_table.descendants(8), []);
    }

    #[test]
    fn process_summary_has_pids_and_memory() {
        let process = |pid| Process { pid, parent: 1, name: "x".to_owned(), memory_bytes: 3 << 19 };
        assert_eq!(summarize_processes(&[]), "");
        assert_eq!(summarize_processes(&[process(7), process(8)]), "7 8 (3.0 MiB)");
    }
}
