//! `toolrack dashboard`: the page of the daemon, opened by a link that is good once.

use serde::Deserialize;
use serde_json::json;

use crate::arguments::daemon::DashboardOptions;
use crate::daemon;
use crate::editor::open_page;
use crate::failure::Failure;
use crate::output::Output;
use crate::surroundings::Surroundings;

/// A link that opens the page.
#[derive(Deserialize)]
struct Link {
    url: String,
    seconds: u64,
}

/// Opens the page, or shows the address that does.
pub(crate) async fn dashboard(
    options: &DashboardOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let daemon = daemon::require(surroundings).await?;
    let Link { url, seconds } = daemon.post("/api/daemon/link").await.map_err(|failure| {
        failure
            .advising("start it with an address: `toolrack daemon start --listen 127.0.0.1:7733`")
    })?;
    if options.no_browser {
        if printer.output() == Output::Table {
            printer.line(&url);
            printer.note(format_args!("note: it opens the page once, within {seconds} s"));
        } else {
            printer.document(&json!({ "url": url, "seconds": seconds }).to_string());
        }
        return Ok(());
    }
    let page = daemon.running.addr.map(|it| format!("http://{it}")).unwrap_or_default();
    match open_page(&url) {
        Ok(()) => {
            let text = format!("your browser should show the page now: {page}");
            printer.done(text, &json!({ "url": page }));
            Ok(())
        }
        Err(error) => Err(Failure::usage(
            format!("no browser can be started: {error}"),
            "`toolrack dashboard --no-browser` shows the address",
        )),
    }
}
