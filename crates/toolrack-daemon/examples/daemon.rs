//! Daemon in the foreground: `cargo run -p toolrack-daemon --example daemon -- HOME`.
//!
//! Listens on a free port, prints its addresses once it is ready, and runs until a signal.

use std::io::{Write as _, stderr, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use toolrack_daemon::{Daemon, DaemonOptions, ShutdownKind};
use toolrack_service::Home;

fn main() -> ExitCode {
    // Must come first: the guardian process is this program, started again.
    toolrack_stdio::init();
    let Some(home) = std::env::args().nth(1) else {
        return fail("usage: daemon HOME");
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    let result = runtime.block_on(run(Home::in_dir(home)));
    // Does not wait for blocking threads.
    runtime.shutdown_background();
    match result {
        Ok(ShutdownKind::Graceful) => ExitCode::SUCCESS,
        Ok(ShutdownKind::Forced) => ExitCode::FAILURE,
        Err(error) => fail(&error.to_string()),
    }
}

async fn run(home: Home) -> Result<ShutdownKind, Box<dyn std::error::Error>> {
    let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let options = DaemonOptions { listen, ..DaemonOptions::default() };
    let daemon = Daemon::start(home, options).await?;
    if let Some(addr) = daemon.addr() {
        writeln!(stdout(), "ready on {addr} and {}", daemon.socket().display())?;
        stdout().flush()?;
    }
    Ok(daemon.run().await?)
}

fn fail(message: &str) -> ExitCode {
    // A closed stderr is ignored.
    writeln!(stderr(), "{message}").unwrap_or_default();
    ExitCode::from(2)
}
