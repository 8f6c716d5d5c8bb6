//! Static files of the dashboard, embedded in the binary and served without a token: they contain no data.

use axum::Router;
use axum::routing::get;
use http::header;

use crate::routes::App;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// A file: its path, content type and content.
type Asset = (&'static str, &'static str, &'static [u8]);

/// A file whose path is its name.
macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        (concat!("/", $name), $content_type, include_bytes!(concat!("../assets/", $name)))
    };
}

/// All files of the dashboard.
const ASSETS: [Asset; 29] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../assets/index.html")),
    asset!("add-server.js", JAVASCRIPT),
    asset!("server-parser.js", JAVASCRIPT),
    asset!("api.js", JAVASCRIPT),
    asset!("app.js", JAVASCRIPT),
    asset!("calls.js", JAVASCRIPT),
    asset!("config.js", JAVASCRIPT),
    asset!("dom.js", JAVASCRIPT),
    asset!("server-editor.js", JAVASCRIPT),
    asset!("diagnostics.js", JAVASCRIPT),
    asset!("form.js", JAVASCRIPT),
    asset!("format.js", JAVASCRIPT),
    asset!("latency.js", JAVASCRIPT),
    asset!("diff.js", JAVASCRIPT),
    asset!("notifications.js", JAVASCRIPT),
    asset!("result.js", JAVASCRIPT),
    asset!("schema.js", JAVASCRIPT),
    asset!("search.js", JAVASCRIPT),
    asset!("server-detail.js", JAVASCRIPT),
    asset!("servers.js", JAVASCRIPT),
    asset!("sse.js", JAVASCRIPT),
    asset!("status.js", JAVASCRIPT),
    asset!("store.js", JAVASCRIPT),
    asset!("sanitize.js", JAVASCRIPT),
    asset!("theme.js", JAVASCRIPT),
    asset!("timeline.js", JAVASCRIPT),
    asset!("tools.js", JAVASCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("style.css", "text/css; charset=utf-8"),
];

/// Whether a path is exactly that of a file.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|(asset_path, ..)| *asset_path == path)
}

/// The routes of all files.
pub(crate) fn routes() -> Router<App> {
    ASSETS.iter().fold(Router::new(), |router, (path, content_type, content)| {
        router.route(path, get(([(header::CONTENT_TYPE, *content_type)], *content)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is missing in `ASSETS` would fail only in the browser.
    #[test]
    fn every_asset_file_is_served() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
        for entry in std::fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name == "index.html" || is_asset(&format!("/{name}")), "{name}");
        }
        assert!(is_asset("/"));
        assert!(!is_asset("/index.html/"));
    }
}
