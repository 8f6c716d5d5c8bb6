//! What accompanies the parameters of every request: `_meta`, written straight into the line's buffer.
//!
//! **Invariant:** a modern request always has the members that the protocol demands, and a legacy one
//! never has them.
//!
//! A request that is passed on: what the one who made it said of itself, and its answers to what was asked.
//!
//! **Invariant:** a modern server learns the abilities of whoever asked in the first place, never ours, because
//! its questions go back to that one. What else the caller's request said of itself reaches a server of either era.
//!
//! The tools of a server whose arguments are said beside the message too.
//!
//! **Invariant:** a server without such tools costs a call one look at an empty place.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use toolrack_mcp::{
    ClientCapabilities, Implementation, InputResponses, LogLevel, MetaKey, Mirror, Request,
    RequestMeta, Revision, Skipped, Tool,
};
use toolrack_transport::{Params, write_text};

use crate::pagination::Listing;
use crate::session::lock;

/// The part of `_meta` that is the same in every request of a session, written once.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// Members separated by commas; empty in the legacy era.
    members: Box<[u8]>,
    /// The first of them, which is ours whoever asks.
    version: Box<[u8]>,
    /// The highest id that was written, so that open requests can be found without a table of them.
    last_id: AtomicU64,
}

/// The parameters of one request with everything that accompanies them.
pub(crate) struct Packed<'a, P> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) params: &'a P,
    pub(crate) extra: Extra<'a>,
}

/// What accompanies one request only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extra<'a> {
    /// Whether the server may report progress. The token is the id of the request.
    pub(crate) progress: Reports,
    /// From which level on the server may send log messages. Only the modern era knows this.
    pub(crate) log_level: Option<LogLevel>,
    /// Told the id before the server can know it.
    pub(crate) on_id: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Which arguments are said beside the message too.
    pub(crate) mirror: Option<&'a Mirror>,
    /// Who asks, if it is not us.
    pub(crate) behalf: Option<&'a Behalf>,
}

/// Whether the server is asked to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reports {
    Wanted,
    #[default]
    Unwanted,
}

impl Envelope {
    /// Spec 2026-07-28, basic §Request Metadata: version and capabilities are demanded of every
    /// request, the name of the client is recommended.
    pub(crate) fn modern(
        revision: Revision,
        client: &Implementation,
        capabilities: &ClientCapabilities,
    ) -> Result<Self, serde_json::Error> {
        let meta = RequestMeta {
            revision,
            capabilities,
            client: Some(client),
            log_level: None,
            progress_token: None,
        };
        let mut text = serde_json::to_vec(&meta)?;
        text.pop();
        let version = format!(r#""{}":"{revision}""#, MetaKey::PROTOCOL_VERSION);
        Ok(Self {
            members: text.into_iter().skip(1).collect(),
            version: version.into_bytes().into_boxed_slice(),
            last_id: AtomicU64::new(0),
        })
    }

    /// The highest id so far.
    pub(crate) fn last_id(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }
}

impl<P: Request + Sync> Params for Packed<'_, P> {
    fn write(&self, id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        self.envelope.last_id.fetch_max(id, Ordering::Relaxed);
        if let Some(tell) = self.extra.on_id {
            tell(id);
        }
        if let Some(behalf) = self.extra.behalf {
            behalf.note(id);
        }
        let start = out.len();
        self.write_meta(id, out)?;
        let body = out.len();
        self.params.write(out)?;
        splice(out, start, body);
        Ok(())
    }

    fn subject(&self) -> Option<&str> {
        self.params.subject()
    }

    fn mirror(&self, tell: &mut dyn FnMut(&str, &str)) {
        if let (Some(mirror), Some(arguments)) = (self.extra.mirror, self.params.arguments()) {
            mirror.tell(arguments, tell);
        }
    }
}

impl<P> Packed<'_, P> {
    /// Writes `{"_meta":{…}`, or nothing if there is nothing to say.
    fn write_meta(&self, id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        const OPEN: &[u8] = br#"{"_meta":{"#;
        let start = out.len();
        out.extend_from_slice(OPEN);
        if self.extra.progress == Reports::Wanted {
            write_text(out, MetaKey::PROGRESS_TOKEN)?;
            out.push(b':');
            serde_json::to_writer(&mut *out, &id)?;
            out.push(b',');
        }
        if !self.envelope.members.is_empty() {
            match self.extra.behalf {
                None => out.extend_from_slice(&self.envelope.members),
                Some(behalf) => {
                    out.extend_from_slice(&self.envelope.version);
                    out.push(b',');
                    out.extend_from_slice(behalf.members());
                }
            }
            out.push(b',');
            if let Some(level) = self.extra.log_level {
                serde_json::to_writer(&mut *out, MetaKey::LOG_LEVEL)?;
                out.push(b':');
                serde_json::to_writer(&mut *out, &level)?;
                out.push(b',');
            }
        }
        if let Some(others) = self.extra.behalf.map(Behalf::others).filter(|it| !it.is_empty()) {
            out.extend_from_slice(others);
            out.push(b',');
        }
        if out.len() == start + OPEN.len() {
            out.truncate(start);
            return Ok(());
        }
        out.pop();
        out.push(b'}');
        Ok(())
    }
}

/// Joins `_meta` and the members behind it into one object. Without either, nothing is left.
fn splice(out: &mut Vec<u8>, start: usize, body: usize) {
    let is_empty = out.get(body..) == Some(b"{}".as_slice());
    match (body > start, is_empty) {
        (true, true) => {
            out.truncate(body);
            out.push(b'}');
        }
        (true, false) => {
            if let Some(brace) = out.get_mut(body) {
                *brace = b',';
            }
        }
        (false, true) => out.truncate(start),
        (false, false) => {}
    }
}

/// For whom a request is passed on.
#[derive(Debug, Clone, Default)]
pub struct Behalf {
    /// Members of `_meta` that introduce the caller to a modern server, separated by commas.
    members: Box<[u8]>,
    /// The other members of its `_meta`, in the same manner.
    others: Box<[u8]>,
    pub(crate) answers: Option<InputResponses>,
    pub(crate) state: Option<String>,
    noting: Option<Noting>,
}

#[derive(Clone)]
struct Noting(Arc<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Noting")
    }
}

impl Behalf {
    /// A caller with these abilities and this name, both as written, whose request had these other members in
    /// its `_meta`.
    pub fn new(
        capabilities: &RawValue,
        client: Option<&RawValue>,
        others: &[(&str, &RawValue)],
    ) -> Result<Self, serde_json::Error> {
        let mut introduction = vec![(MetaKey::CLIENT_CAPABILITIES, capabilities)];
        introduction.extend(client.map(|it| (MetaKey::CLIENT_INFO, it)));
        let (members, others) = (joined(&introduction)?, joined(others)?);
        Ok(Self { members, others, ..Self::default() })
    }

    /// The same with answers to what the server asked, and what it wants back with them.
    #[must_use]
    pub fn answering(self, answers: Option<InputResponses>, state: Option<String>) -> Self {
        Self { answers, state, ..self }
    }

    /// The same, with somebody who is told the id of the request before the server can know it. It must not wait.
    #[must_use]
    pub fn noting(self, tell: Arc<dyn Fn(u64) + Send + Sync>) -> Self {
        Self { noting: Some(Noting(tell)), ..self }
    }

    pub(crate) fn note(&self, id: u64) {
        if let Some(Noting(tell)) = &self.noting {
            tell(id);
        }
    }

    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    pub(crate) fn others(&self) -> &[u8] {
        &self.others
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.answers.is_some() || self.state.is_some()
    }
}

fn joined(members: &[(&str, &RawValue)]) -> Result<Box<[u8]>, serde_json::Error> {
    let mut joined = Vec::new();
    for (key, value) in members {
        if !joined.is_empty() {
            joined.push(b',');
        }
        write_text(&mut joined, key)?;
        joined.push(b':');
        joined.extend_from_slice(value.get().as_bytes());
    }
    Ok(joined.into_boxed_slice())
}

/// What is mirrored, by the name of the tool.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    any: AtomicBool,
    by_tool: Mutex<HashMap<String, Arc<Mirror>>>,
}

impl Mirrors {
    pub(crate) fn of(&self, tool: Option<&str>) -> Option<Arc<Mirror>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.by_tool).get(tool?).map(Arc::clone)
    }

    /// Takes the place of what was known before.
    ///
    /// Spec 2026-07-28, transports §Custom Headers: tools whose annotations break the rules are left
    /// out of the list, and somebody is told.
    pub(crate) fn sift(&self, listing: &mut Listing<Tool>) {
        let mut by_tool = HashMap::new();
        let mut index = 0;
        let skipped = &mut listing.skipped;
        listing.items.retain(|tool| {
            index += 1;
            match Mirror::of(&tool.input_schema) {
                Ok(None) => true,
                Ok(Some(mirror)) => {
                    by_tool.insert(tool.name.clone(), Arc::new(mirror));
                    true
                }
                Err(fault) => {
                    tracing::warn!(tool = tool.name, %fault, "a tool was left out");
                    let (name, reason) = (Some(tool.name.clone()), fault.to_string());
                    skipped.push(Skipped { index: index - 1, name, reason });
                    false
                }
            }
        });
        self.any.store(!by_tool.is_empty(), Ordering::Release);
        *lock(&self.by_tool) = by_tool;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::Serialize;
    use serde_json::json;
    use serde_json::value::RawValue;
    use toolrack_mcp::{EmptyResult, Method};

    use super::*;

    #[derive(Serialize)]
    struct Anything(serde_json::Value);

    impl Request for Anything {
        const METHOD: Method = Method::Ping;
        type Answer = EmptyResult;
    }

    #[track_caller]
    fn check(envelope: &Envelope, params: serde_json::Value, extra: Extra<'_>, expected: &str) {
        let mut out = b"before".to_vec();
        let params = &Anything(params);
        Packed { envelope, params, extra }.write(7, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}"));
        assert_eq!(envelope.last_id(), 7);
    }

    fn modern() -> Envelope {
        let client = Implementation { name: "t".to_owned(), ..Implementation::default() };
        Envelope::modern(Revision::LATEST, &client, &ClientCapabilities::default()).unwrap()
    }

    const MEMBERS: &str = concat!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{},"#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"t","version":""}"#,
    );

    const REPORTING: Extra<'_> =
        Extra { progress: Reports::Wanted, log_level: Some(LogLevel::Info), ..EMPTY };
    const EMPTY: Extra<'_> = Extra {
        progress: Reports::Unwanted,
        log_level: None,
        on_id: None,
        mirror: None,
        behalf: None,
    };

    #[test]
    fn legacy_requests_carry_a_token_at_most() {
        let legacy = Envelope::default();
        check(&legacy, json!({}), Extra::default(), "");
        check(&legacy, json!({"a": 1}), Extra::default(), r#"{"a":1}"#);
        check(&legacy, json!({"a": 1}), REPORTING, r#"{"_meta":{"progressToken":7},"a":1}"#);
        check(&legacy, json!({}), REPORTING, r#"{"_meta":{"progressToken":7}}"#);
    }

    #[test]
    fn modern_requests_say_who_asks() {
        let plain = format!(r#"{{"_meta":{{{MEMBERS}}}}}"#);
        check(&modern(), json!({}), Extra::default(), &plain);
        let full = format!(
            r#"{{"_meta":{{"progressToken":7,{MEMBERS},"io.modelcontextprotocol/logLevel":"info"}},"a":1}}"#
        );
        check(&modern(), json!({"a": 1}), REPORTING, &full);
    }

    #[test]
    fn a_request_that_is_passed_on_says_who_asked_first() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (capabilities, trace) = (raw(r#"{"roots":{ }}"#), raw(r#""00-1""#));
        let behalf = Behalf::new(&capabilities, None, &[("traceparent", &trace)]).unwrap();
        let extra = Extra { behalf: Some(&behalf), ..EMPTY };
        let expected = concat!(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{"roots":{ }},"traceparent":"00-1"},"a":1}"#
        );
        check(&modern(), json!({"a": 1}), extra, expected);
        // A legacy server has no use for who asked, but what else was said may be for it.
        let legacy = r#"{"_meta":{"traceparent":"00-1"},"a":1}"#;
        check(&Envelope::default(), json!({"a": 1}), extra, legacy);
    }

    #[test]
    fn the_id_is_told_while_writing() {
        let told = AtomicU64::new(0);
        let tell = |id| told.store(id, Ordering::Relaxed);
        let extra = Extra { on_id: Some(&tell), ..Extra::default() };
        check(&Envelope::default(), json!({}), extra, "");
        assert_eq!(told.load(Ordering::Relaxed), 7);

        let told = Arc::new(AtomicU64::new(0));
        let noted = Arc::clone(&told);
        let behalf =
            Behalf::default().noting(Arc::new(move |id| noted.store(id, Ordering::Relaxed)));
        check(&Envelope::default(), json!({}), Extra { behalf: Some(&behalf), ..EMPTY }, "");
        assert_eq!(told.load(Ordering::Relaxed), 7);
    }
}

#[cfg(test)]
mod param_headers_tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, header: &str) -> Tool {
        let properties = json!({"a": {"type": "string", "x-mcp-header": header}});
        let schema = json!({"type": "object", "properties": properties});
        serde_json::from_value(json!({"name": name, "inputSchema": schema})).unwrap()
    }

    #[test]
    fn bad_tools_are_left_out_and_good_ones_remembered() {
        let items = vec![tool("good", "A"), tool("bad", "A b")];
        let mut listing = Listing { items, ..Listing::default() };
        let mirrors = Mirrors::default();
        mirrors.sift(&mut listing);
        let names: Vec<&str> = listing.items.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let [skipped] = listing.skipped.as_slice() else { panic!("{:?}", listing.skipped) };
        assert_eq!((skipped.index, skipped.name.as_deref()), (1, Some("bad")));
        assert!(mirrors.of(Some("good")).is_some());
        assert!(mirrors.of(Some("bad")).is_none());
        mirrors.sift(&mut Listing::default());
        assert!(mirrors.of(Some("good")).is_none());
    }
}
