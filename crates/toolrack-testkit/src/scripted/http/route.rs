//! Routes of the HTTP endpoint, and the era of a message. No IO.

use super::Shape;
use crate::http::Request;
use crate::jsonrpc::Incoming;
use crate::revision::{Revision, SupportedRevisions};

/// Route by HTTP method and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Message,
    Stream,
    EndSession,
    /// 2024-11-05: the stream for all responses.
    Sse2024Stream,
    Sse2024Message,
}

/// How to handle a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    LegacyStateless,
    LegacySession,
}

/// Route, or the status for an unknown one.
pub(super) fn route(
    shape: Shape,
    revisions: SupportedRevisions,
    request: &Request,
) -> Result<Route, u16> {
    let old = shape == Shape::Sse;
    let has_sessions = shape.has_sessions() && revisions.has_legacy();
    match (request.verb.as_str(), request.path.as_str()) {
        ("GET", "/mcp" | "/sse") if old => Ok(Route::Sse2024Stream),
        ("POST", "/messages") if old => Ok(Route::Sse2024Message),
        ("POST", "/mcp") if !old => Ok(Route::Message),
        ("GET", "/mcp") if has_sessions => Ok(Route::Stream),
        ("DELETE", "/mcp") if has_sessions => Ok(Route::EndSession),
        (_, "/mcp") => Err(405),
        (_, "/sse" | "/messages") if old => Err(405),
        _ => Err(404),
    }
}

pub(super) fn era_for(
    shape: Shape,
    revisions: SupportedRevisions,
    request: &Request,
    message: &Incoming<'_>,
) -> Era {
    let legacy = if shape.has_sessions() { Era::LegacySession } else { Era::LegacyStateless };
    if !revisions.has_modern() {
        return legacy;
    }
    if !revisions.has_legacy() {
        return Era::Modern;
    }
    let header = request.header("mcp-protocol-version").and_then(Revision::parse);
    let says_legacy = header.is_some_and(|header| header != Revision::R2026_07_28);
    let session_message = request.header("mcp-session-id").is_some();
    if message.method.as_deref() == Some("initialize") || session_message || says_legacy {
        legacy
    } else {
        Era::Modern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str, headers: &[(&str, &str)]) -> Request {
        let (verb, path) = line.split_once(' ').expect("a verb and a path");
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Request {
            verb: verb.to_owned(),
            path: path.to_owned(),
            headers: headers.collect(),
            ..Request::default()
        }
    }

    #[test]
    fn every_shape_has_its_routes() {
        let check = |shape: Shape, line: &str, expected: Result<Route, u16>| {
            let revisions = SupportedRevisions::Only(Revision::R2025_11_25);
            assert_eq!(route(shape, revisions, &request(line, &[])), expected, "{shape:?} {line}");
        };
        check(Shape::Stateless, "POST /mcp", Ok(Route::Message));
        check(Shape::Stateless, "GET /mcp", Err(405));
        check(Shape::Stateless, "DELETE /mcp", Err(405));
        check(Shape::Stateless, "POST /", Err(404));
        check(Shape::Session, "POST /mcp", Ok(Route::Message));
        check(Shape::Session, "GET /mcp", Ok(Route::Stream));
        check(Shape::Session, "DELETE /mcp", Ok(Route::EndSession));
        check(Shape::Session, "PUT /mcp", Err(405));
        check(Shape::Session, "GET /sse", Err(404));
        check(Shape::Sse, "GET /mcp", Ok(Route::Sse2024Stream));
        check(Shape::Sse, "GET /sse", Ok(Route::Sse2024Stream));
        check(Shape::Sse, "POST /messages", Ok(Route::Sse2024Message));
        check(Shape::Sse, "POST /mcp", Err(405));
    }

    #[test]
    fn dual_server_detects_the_era() {
        let check = |method: &str, headers: &[(&str, &str)], expected: Era| {
            let text = format!(r#"{{"id":1,"method":"{method}"}}"#);
            let message: Incoming<'_> = serde_json::from_str(&text).expect("a message");
            let request = request("POST /mcp", headers);
            assert_eq!(
                era_for(Shape::Dual, SupportedRevisions::Dual, &request, &message),
                expected
            );
        };
        check("initialize", &[], Era::LegacySession);
        check("tools/list", &[("mcp-session-id", "a")], Era::LegacySession);
        check("tools/list", &[("mcp-protocol-version", "2025-06-18")], Era::LegacySession);
        check("tools/list", &[("mcp-protocol-version", "2026-07-28")], Era::Modern);
        check("tools/list", &[("mcp-protocol-version", "2031-01-01")], Era::Modern);
        check("server/discover", &[], Era::Modern);
    }
}
