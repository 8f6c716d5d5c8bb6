//! The page, embedded in the program: static files without data, the only thing that is served without a key.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Uri, header};

use crate::app::App;
use crate::problem::Problem;

/// Path, type and content of every file.
const ASSETS: [(&str, &str, &[u8]); 2] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../assets/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../assets/app.js")),
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
