//! A request as the bench server needs it: found in the bytes, looked at as little as possible.

use memchr::memmem;

/// How replies are framed, and which eras are spoken; the address says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Json,
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eras {
    Both,
    Legacy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Post,
    Delete,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) verb: Verb,
    pub(super) framing: Framing,
    pub(super) eras: Eras,
    pub(super) body: &'a [u8],
}

/// The path under which a server frames and speaks like this.
pub(crate) fn path(framing: Framing, eras: Eras) -> &'static str {
    match (framing, eras) {
        (Framing::Json, Eras::Both) => "/json",
        (Framing::Json, Eras::Legacy) => "/legacy/json",
        (Framing::Events, Eras::Both) => "/events",
        (Framing::Events, Eras::Legacy) => "/legacy/events",
    }
}

impl<'a> Request<'a> {
    /// The first request, if all of it is there, and how many bytes it takes.
    pub(super) fn first_of(said: &'a [u8]) -> Option<(Self, usize)> {
        let head_bytes = memmem::find(said, b"\r\n\r\n")? + 4;
        let (head, rest) = said.split_at_checked(head_bytes)?;
        let body = rest.get(..body_bytes(head))?;
        let mut words = head.split(|byte| *byte == b' ');
        let verb = match words.next() {
            Some(b"POST") => Verb::Post,
            Some(b"DELETE") => Verb::Delete,
            _ => Verb::Other,
        };
        let target = words.next().unwrap_or_default();
        let framing = if target.ends_with(b"/events") { Framing::Events } else { Framing::Json };
        let eras = if target.starts_with(b"/legacy/") { Eras::Legacy } else { Eras::Both };
        Some((Self { verb, framing, eras, body }, head_bytes + body.len()))
    }
}

/// No client under measurement sends a body in chunks.
fn body_bytes(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let value = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value.trim_ascii())
    });
    value.map_or(0, super::super::json_scan::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expected: Option<(Verb, Framing, Eras, &str, usize)>) {
        let found = Request::first_of(said.as_bytes());
        let expected = expected.map(|(verb, framing, eras, body, n_bytes)| {
            (Request { verb, framing, eras, body: body.as_bytes() }, n_bytes)
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_request_is_found_when_all_of_it_is_there() {
        use {Eras::Both, Framing::Json, Verb::Post};
        check("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r", None);
        check("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r\n{", None);
        let whole = "POST /json HTTP/1.1\r\nHost: x\r\ncontent-length:2\r\n\r\n{}GET";
        check(whole, Some((Post, Json, Both, "{}", whole.len() - 3)));
    }

    #[test]
    fn the_address_says_how_to_answer() {
        let request = |line: &str| format!("{line} HTTP/1.1\r\n\r\n");
        let check = |line, verb, framing, eras| {
            let said = request(line);
            check(&said, Some((verb, framing, eras, "", said.len())));
        };
        check("GET /events", Verb::Other, Framing::Events, Eras::Both);
        check("DELETE /legacy/json", Verb::Delete, Framing::Json, Eras::Legacy);
        check("POST /legacy/events", Verb::Post, Framing::Events, Eras::Legacy);
    }

    #[test]
    fn every_path_is_understood() {
        for framing in [Framing::Json, Framing::Events] {
            for eras in [Eras::Both, Eras::Legacy] {
                let said = format!("POST {} HTTP/1.1\r\n\r\n", path(framing, eras));
                check(&said, Some((Verb::Post, framing, eras, "", said.len())));
            }
        }
    }
}
