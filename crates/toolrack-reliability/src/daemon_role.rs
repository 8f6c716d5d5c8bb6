//! The daemon as a process of its own, for the gates to signal and to kill.
//!
//! It is what `toolrack daemon start --foreground` runs, without a terminal, a log or an address of its own.

use std::path::Path;
use std::process::ExitCode;

use toolrack_daemon::{Daemon, DaemonOptions, Ending};
use toolrack_service::Home;

/// Runs the daemon of a home until a signal comes.
pub(crate) fn run(home: &Path) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ending = runtime.block_on(async {
        let options = DaemonOptions { listen: None, ..DaemonOptions::default() };
        let daemon = Daemon::start(Home::at(home), options).await?;
        anyhow::Ok(daemon.run().await?)
    });
    // Without waiting for threads that are at the disk.
    runtime.shutdown_background();
    Ok(match ending? {
        Ending::Orderly => ExitCode::SUCCESS,
        Ending::Forced => ExitCode::FAILURE,
    })
}
