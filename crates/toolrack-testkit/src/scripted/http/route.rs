//! Which door a request comes to, and which era its message belongs to. No IO.

use super::Shape;
use super::request::Request;
use crate::jsonrpc::Incoming;
use crate::revision::{Revision, Speaks};

/// What a request wants, by its verb and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Message,
    Stream,
    Farewell,
    /// 2024-11-05: the stream on which everything is answered.
    OldStream,
    OldMessage,
}

/// How a message is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    LegacyAlone,
    LegacySession,
}

/// The door, or the status for a request that comes to none.
pub(super) fn door(shape: Shape, speaks: Speaks, request: &Request) -> Result<Door, u16> {
    let old = shape == Shape::Sse;
    match (request.verb.as_str(), request.path.as_str()) {
        ("GET", "/mcp" | "/sse") if old => Ok(Door::OldStream),
        ("POST", "/messages") if old => Ok(Door::OldMessage),
        ("POST", "/mcp" | "/mcp/moved") if !old => Ok(Door::Message),
        ("GET", "/mcp" | "/mcp/moved") if shape.has_sessions() && speaks.legacy() => {
            Ok(Door::Stream)
        }
        ("DELETE", "/mcp" | "/mcp/moved") if shape.has_sessions() && speaks.legacy() => {
            Ok(Door::Farewell)
        }
        (_, "/mcp" | "/mcp/moved") => Err(405),
        (_, "/sse" | "/messages") if old => Err(405),
        _ => Err(404),
    }
}

pub(super) fn era_of(
    shape: Shape,
    speaks: Speaks,
    request: &Request,
    message: &Incoming<'_>,
) -> Era {
    let legacy = if shape.has_sessions() { Era::LegacySession } else { Era::LegacyAlone };
    if !speaks.modern() {
        return legacy;
    }
    if !speaks.legacy() {
        return Era::Modern;
    }
    let said = request.header("mcp-protocol-version").and_then(Revision::parse);
    let says_legacy = said.is_some_and(|said| said != Revision::R2026_07_28);
    let in_session = request.header("mcp-session-id").is_some();
    if message.method.as_deref() == Some("initialize") || in_session || says_legacy {
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
    fn every_shape_has_its_doors() {
        let check = |shape: Shape, line: &str, expected: Result<Door, u16>| {
            let speaks = Speaks::Only(Revision::R2025_11_25);
            assert_eq!(door(shape, speaks, &request(line, &[])), expected, "{shape:?} {line}");
        };
        check(Shape::Stateless, "POST /mcp", Ok(Door::Message));
        check(Shape::Stateless, "GET /mcp", Err(405));
        check(Shape::Stateless, "DELETE /mcp", Err(405));
        check(Shape::Stateless, "POST /", Err(404));
        check(Shape::Session, "POST /mcp/moved", Ok(Door::Message));
        check(Shape::Session, "GET /mcp", Ok(Door::Stream));
        check(Shape::Session, "DELETE /mcp", Ok(Door::Farewell));
        check(Shape::Session, "PUT /mcp", Err(405));
        check(Shape::Session, "GET /sse", Err(404));
        check(Shape::Sse, "GET /mcp", Ok(Door::OldStream));
        check(Shape::Sse, "GET /sse", Ok(Door::OldStream));
        check(Shape::Sse, "POST /messages", Ok(Door::OldMessage));
        check(Shape::Sse, "POST /mcp", Err(405));
    }

    #[test]
    fn a_dual_server_tells_the_eras_apart() {
        let check = |method: &str, headers: &[(&str, &str)], expected: Era| {
            let text = format!(r#"{{"id":1,"method":"{method}"}}"#);
            let message: Incoming<'_> = serde_json::from_str(&text).expect("a message");
            let request = request("POST /mcp", headers);
            assert_eq!(era_of(Shape::Dual, Speaks::Dual, &request, &message), expected);
        };
        check("initialize", &[], Era::LegacySession);
        check("tools/list", &[("mcp-session-id", "a")], Era::LegacySession);
        check("tools/list", &[("mcp-protocol-version", "2025-06-18")], Era::LegacySession);
        check("tools/list", &[("mcp-protocol-version", "2026-07-28")], Era::Modern);
        check("tools/list", &[("mcp-protocol-version", "2031-01-01")], Era::Modern);
        check("server/discover", &[], Era::Modern);
    }
}
