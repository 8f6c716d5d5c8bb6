//! A daemon in the foreground: `cargo run -p toolrack-daemon --example daemon -- HOME`.
//!
//! Listens on a port that the system chooses. Says where when it is ready, and ends when a signal comes.

use std::io::{Write as _, stderr, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use toolrack_daemon::{Daemon, DaemonOptions, Ending};
use toolrack_service::Home;

fn main() -> ExitCode {
    // First of all: this program is also the guardian of its servers.
    toolrack_stdio::init();
    let Some(home) = std::env::args().nth(1) else {
        return fail("usage: daemon HOME");
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    let ending = runtime.block_on(run(Home::at(home)));
    // Without waiting for threads that are at the disk.
    runtime.shutdown_background();
    match ending {
        Ok(Ending::Orderly) => ExitCode::SUCCESS,
        Ok(Ending::Forced) => ExitCode::FAILURE,
        Err(error) => fail(&error.to_string()),
    }
}

async fn run(home: Home) -> Result<Ending, Box<dyn std::error::Error>> {
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
    // Without a stderr there is nobody to tell.
    writeln!(stderr(), "{message}").unwrap_or_default();
    ExitCode::from(2)
}
