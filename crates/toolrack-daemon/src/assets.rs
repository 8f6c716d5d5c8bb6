//! The page, embedded in the program: static files without data, the only thing that is served without a key.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Uri, header};

use crate::problem::Problem;
use crate::state::App;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// A file of the page: its path, its type and its content.
type Asset = (&'static str, &'static str, &'static [u8]);

/// A file that is reached by its own name.
macro_rules! asset {
    ($name:literal, $kind:ident) => {
        (concat!("/", $name), $kind, include_bytes!(concat!("../assets/", $name)))
    };
}

/// Every file of the page.
const ASSETS: [Asset; 29] = [
    ("/", HTML, include_bytes!("../assets/index.html")),
    asset!("add-server.js", SCRIPT),
    asset!("server-parser.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("app.js", SCRIPT),
    asset!("calls.js", SCRIPT),
    asset!("config.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("server-editor.js", SCRIPT),
    asset!("diagnostics.js", SCRIPT),
    asset!("form.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("latency.js", SCRIPT),
    asset!("diff.js", SCRIPT),
    asset!("notifications.js", SCRIPT),
    asset!("result.js", SCRIPT),
    asset!("schema.js", SCRIPT),
    asset!("search.js", SCRIPT),
    asset!("server-detail.js", SCRIPT),
    asset!("servers.js", SCRIPT),
    asset!("sse.js", SCRIPT),
    asset!("status.js", SCRIPT),
    asset!("store.js", SCRIPT),
    asset!("sanitize.js", SCRIPT),
    asset!("theme.js", SCRIPT),
    asset!("timeline.js", SCRIPT),
    asset!("tools.js", SCRIPT),
    asset!("icon.svg", PICTURE),
    asset!("style.css", STYLE),
];

/// Whether a path is that of a file, letter for letter.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|it| it.0 == path)
}

/// The paths of all files.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|it| it.0)
}

pub(crate) async fn serve(State(_app): State<App>, uri: Uri) -> Result<Response, Problem> {
    let found = ASSETS.iter().find(|it| it.0 == uri.path());
    let (_, kind, content) = found.ok_or_else(|| Problem::not_found("there is no such page"))?;
    let mut response = (*content).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that nobody serves is missing only in the browser, where it is noticed last.
    #[test]
    fn every_file_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name == "index.html" || is_asset(&format!("/{name}")), "{name}");
        }
        assert!(is_asset("/"));
        assert!(!is_asset("/index.html/"));
    }
}
