//! Starting a server to see whether it works, and ending it again.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::tools::ConductOptions;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::Output;
use crate::printer::Printer;
use crate::process::{self, Process};
use crate::server_selection::Servers;
use crate::server_session::{Rack, with_rack};

/// What was seen of a server while it ran.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) n_tools: usize,
    pub(crate) n_tools_total: usize,
    pub(crate) revision: String,
    pub(crate) took: Duration,
    pub(crate) processes: Vec<Process>,
}

impl Trial {
    /// In few words, behind the name of the server.
    pub(crate) fn words(&self) -> String {
        let took = self.took.as_millis();
        format!("{}, protocol {}, ready in {took} ms", self.tools(), self.revision)
    }

    /// How many tools there are, and how many of them are offered.
    fn tools(&self) -> String {
        match (self.n_tools, self.n_tools_total) {
            (1, 1) => "1 tool".to_owned(),
            (shown, total) if shown == total => format!("{total} tools"),
            (shown, total) => format!("{shown} of {total} tools"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "n_tools": self.n_tools,
            "n_tools_total": self.n_tools_total,
            "revision": self.revision,
            "ready_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "processes": self.processes.iter().map(Process::json).collect::<Vec<_>>(),
        })
    }
}

/// Starts or reaches a server of the config, looks at it, and ends it.
pub(crate) async fn trial(name: &str, surroundings: &Surroundings) -> Result<Trial, Failure> {
    // What is odd about the file has been said.
    let silent = Printer::plain(Output::Table).silenced();
    let servers = Servers::configured(&surroundings.settings, &silent)?;
    servers.server(name)?;
    let one = servers.keep(|it| it == name);
    let begun = Instant::now();
    // It is tried apart from one that the daemon may run.
    let surroundings = &surroundings.without_daemon();
    with_rack(one, &ConductOptions::default(), surroundings, async |rack: &Rack| {
        let connection = rack.connect(name).await?;
        let revision = connection.client().map(|it| it.revision().to_string());
        Ok(Trial {
            n_tools: connection.n_tools(),
            n_tools_total: connection.listing().map_or(0, |it| it.items.len()),
            revision: revision.unwrap_or_default(),
            took: begun.elapsed(),
            processes: process::ours(),
        })
    })
    .await
}
