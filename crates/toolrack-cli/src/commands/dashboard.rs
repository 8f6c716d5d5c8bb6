//! `toolrack dashboard`: the page of the daemon, opened by a link that is good once.
//!
//! **Invariant:** the link is on no command line, which other users of the machine can read. A browser is given the
//! path of a private file that leads there.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use crate::args::daemon::DashboardOptions;
use crate::context::Surroundings;
use crate::daemon_client::{self, Daemon};
use crate::error::Failure;
use crate::external_program::open_page;
use crate::output::Output;
use crate::printer::Printer;

/// A link that opens the page.
#[derive(Deserialize)]
struct Link {
    url: String,
    seconds: u64,
}

/// A page in a file that leads to the dashboard.
#[derive(Deserialize)]
struct Page {
    file: PathBuf,
    url: String,
}

/// Opens the page, or shows the address that does.
pub(crate) async fn dashboard(
    options: &DashboardOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let daemon = daemon_client::require(surroundings).await?;
    if options.no_browser {
        return show(&daemon, printer).await;
    }
    let Page { file, url } = daemon.post("/api/daemon/page").await.map_err(unreachable)?;
    match open_page(&file) {
        Ok(()) => {
            let text = format!(
                "your browser should show the page now: {url}\n\
                 hint: if it shows none, `toolrack dashboard --no-browser` gives an address to open"
            );
            printer.done(text, &json!({ "url": url }));
            Ok(())
        }
        Err(error) => Err(Failure::usage(
            format!("no browser can be started: {error}"),
            "`toolrack dashboard --no-browser` shows the address",
        )),
    }
}

async fn show(daemon: &Daemon, printer: &Printer) -> Result<(), Failure> {
    let Link { url, seconds } = daemon.post("/api/daemon/link").await.map_err(unreachable)?;
    if printer.output() == Output::Table {
        printer.line(&url);
        printer.note(format_args!("note: it opens the page once, within {seconds} s"));
    } else {
        printer.document(&json!({ "url": url, "seconds": seconds }).to_string());
    }
    Ok(())
}

fn unreachable(failure: Failure) -> Failure {
    failure.advising("start it with an address: `toolrack daemon start --listen 127.0.0.1:7733`")
}
