//! A browser without a window: it opens a page and goes where the page sends it.
//!
//! The login pages of the harness send the visitor back at once, so the redirect reaches the product's own
//! listener just as with a person.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use toolrack_auth::UrlOpener;
use url::Url;

const PATIENCE: Duration = Duration::from_secs(10);
const MAX_PAGES: usize = 5;
const MAX_PAGE_BYTES: u64 = 64 << 10;

pub(crate) fn opener() -> UrlOpener {
    Arc::new(|url: &Url| {
        let url = url.clone();
        thread::Builder::new().spawn(move || {
            visit(url).unwrap_or_else(|error| crate::complain(&format!("browser: {error}")));
        })?;
        Ok(())
    })
}

fn visit(mut url: Url) -> io::Result<()> {
    for _ in 0..MAX_PAGES {
        let Some(next) = load(&url)? else { return Ok(()) };
        url = url.join(&next).map_err(io::Error::other)?;
    }
    Err(io::Error::other("too many redirects"))
}

/// Loads a page and gives where it sends the visitor.
fn load(url: &Url) -> io::Result<Option<String>> {
    let host = url.host_str().unwrap_or("localhost");
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let target =
        url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(MAX_PAGE_BYTES).read_to_end(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    let head = page.split("\r\n\r\n").next().unwrap_or_default();
    let location = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    Ok(location)
}
