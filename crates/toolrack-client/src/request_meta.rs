//! Request `_meta`: serialized straight into the transport's buffer, before the params.
//!
//! [`ForwardedFor`] carries the identity of the client that a gateway forwards a request for.
//! [`ToolParamHeaders`] knows which tool arguments HTTP repeats in headers (`x-mcp-header`).
//!
//! **Invariant:** a modern request always has the `_meta` members the protocol requires, and a legacy one
//! never has them.
//!
//! **Invariant:** a forwarded request declares the capabilities of its original client, never ours, because
//! the server's input requests go back to that client. Its other `_meta` members reach servers of either era.
//!
//! **Invariant:** a server without `x-mcp-header` tools costs a call one atomic load.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use toolrack_mcp::{
    ClientCapabilities, Implementation, InputResponses, LogLevel, MetaKey, ParamHeaders, Request,
    RequestMeta, Revision, SkippedEntry, Tool,
};
use toolrack_transport::{Params, write_string};

use crate::pagination::List;
use crate::progress::ProgressReceiver;

/// The members of `_meta` that all requests of a session share, serialized once.
#[derive(Debug, Default)]
pub(crate) struct MetaTemplate {
    /// Members, each with a comma behind it; empty in the legacy era.
    members: Box<[u8]>,
    /// The protocol version member, which is ours even in a forwarded request.
    version: Box<[u8]>,
}

/// Params of one request with their `_meta`.
pub(crate) struct RequestWithMeta<'a, P> {
    pub(crate) template: &'a MetaTemplate,
    pub(crate) params: &'a P,
    pub(crate) meta: PerRequestMeta<'a>,
}

/// `_meta` of one request.
#[derive(Clone, Copy, Default)]
pub(crate) struct PerRequestMeta<'a> {
    /// Whether to send a progress token. The token is the request id.
    pub(crate) progress: WantProgress<'a>,
    /// Minimum log level. Modern era only.
    pub(crate) log_level: Option<LogLevel>,
    /// Called with the request id before the request is sent.
    pub(crate) on_id: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Arguments to repeat in HTTP headers.
    pub(crate) param_headers: Option<&'a ParamHeaders>,
    /// Original client of a forwarded request.
    pub(crate) forwarded_for: Option<&'a ForwardedFor>,
}

/// Whether to request progress notifications.
#[derive(Clone, Copy, Default)]
pub(crate) enum WantProgress<'a> {
    #[default]
    No,
    /// For the callback of the call, if it has one. Without one, progress still extends the deadline.
    Yes,
    /// For a receiver that may outlive the request, as for a task.
    To(&'a ProgressReceiver<'a>),
}

impl MetaTemplate {
    /// Spec 2026-07-28, basic §Request Metadata: version and capabilities are required in every request, the
    /// client info is recommended.
    pub(crate) fn for_modern(
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
        // Without the braces: members of the single request are written next to these.
        let mut members = serde_json::to_vec(&meta)?.split_off(1);
        members.pop();
        members.push(b',');
        let version = format!(r#""{}":"{revision}","#, MetaKey::PROTOCOL_VERSION);
        Ok(Self { members: members.into(), version: version.into_bytes().into() })
    }
}

impl<P: Request + Sync> Params for RequestWithMeta<'_, P> {
    /// Writes `_meta` and the params behind it as one object, or nothing if both are empty.
    fn write(&self, id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        const OPEN: &[u8] = br#"{"_meta":{"#;
        let PerRequestMeta { progress, log_level, on_id, forwarded_for, .. } = self.meta;
        // Before anything is written: a message about this id can arrive as soon as the server has the request.
        if let WantProgress::To(receiver) = progress {
            receiver.register(id);
        }
        if let Some(on_id) = on_id {
            on_id(id);
        }
        if let Some(IdObserver(on_id)) =
            forwarded_for.and_then(|forwarded| forwarded.on_id.as_ref())
        {
            on_id(id);
        }
        let start = out.len();
        out.extend_from_slice(OPEN);
        // Every member ends with a comma; the last comma is replaced below.
        if !matches!(progress, WantProgress::No) {
            out.extend_from_slice(br#""progressToken":"#);
            serde_json::to_writer(&mut *out, &id)?;
            out.push(b',');
        }
        if !self.template.members.is_empty() {
            match forwarded_for {
                None => out.extend_from_slice(&self.template.members),
                Some(forwarded_for) => {
                    // The connection speaks our version; capabilities and info are the original client's.
                    out.extend_from_slice(&self.template.version);
                    out.extend_from_slice(&forwarded_for.identity);
                }
            }
            if let Some(level) = log_level {
                serde_json::to_writer(&mut *out, MetaKey::LOG_LEVEL)?;
                out.push(b':');
                serde_json::to_writer(&mut *out, &level)?;
                out.push(b',');
            }
        }
        if let Some(forwarded_for) = forwarded_for {
            out.extend_from_slice(&forwarded_for.other_meta);
        }
        let has_meta = out.len() > start + OPEN.len();
        out.truncate(if has_meta { out.len() - 1 } else { start });
        if has_meta {
            out.push(b'}');
        }
        let body = out.len();
        self.params.write(out)?;
        let is_empty = out.get(body..) == Some(b"{}".as_slice());
        if is_empty {
            out.truncate(body);
        }
        match out.get_mut(body) {
            // `{"_meta":{…}` and `{…}`: the second opening brace becomes a comma.
            Some(brace) if has_meta => *brace = b',',
            None if has_meta => out.push(b'}'),
            _ => {}
        }
        Ok(())
    }

    fn target_name(&self) -> Option<&str> {
        self.params.subject()
    }

    fn header_params(&self, tell: &mut dyn FnMut(&str, &str)) {
        if let (Some(mirror), Some(arguments)) = (self.meta.param_headers, self.params.arguments())
        {
            mirror.for_each(arguments, tell);
        }
    }
}

/// The client that a request is forwarded for.
#[derive(Debug, Clone, Default)]
pub struct ForwardedFor {
    /// `_meta` members with the client's capabilities and info, each with a comma behind it, for a modern server.
    identity: Box<[u8]>,
    /// The client's other `_meta` members, in the same form.
    other_meta: Box<[u8]>,
    pub(crate) input_responses: Option<InputResponses>,
    pub(crate) request_state: Option<String>,
    on_id: Option<IdObserver>,
}

#[derive(Clone)]
struct IdObserver(Arc<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for IdObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdObserver")
    }
}

impl ForwardedFor {
    /// Creates it from the client's capabilities and info, both as raw JSON, and the other `_meta` members of
    /// its request.
    pub fn new(
        capabilities: &RawValue,
        client: Option<&RawValue>,
        others: &[(&str, &RawValue)],
    ) -> Result<Self, serde_json::Error> {
        let mut identity_members = vec![(MetaKey::CLIENT_CAPABILITIES, capabilities)];
        identity_members.extend(client.map(|info| (MetaKey::CLIENT_INFO, info)));
        let (identity, other_meta) = (join_members(&identity_members)?, join_members(others)?);
        Ok(Self { identity, other_meta, ..Self::default() })
    }

    /// Adds responses to the server's input requests, and the server's request state.
    #[must_use]
    pub fn with_input_responses(
        self,
        input_responses: Option<InputResponses>,
        request_state: Option<String>,
    ) -> Self {
        Self { input_responses, request_state, ..self }
    }

    /// Adds a callback that gets the request id before the request is sent. It must not block.
    #[must_use]
    pub fn with_id_observer(self, on_id: Arc<dyn Fn(u64) + Send + Sync>) -> Self {
        Self { on_id: Some(IdObserver(on_id)), ..self }
    }

    pub(crate) fn has_input(&self) -> bool {
        self.input_responses.is_some() || self.request_state.is_some()
    }
}

fn join_members(members: &[(&str, &RawValue)]) -> Result<Box<[u8]>, serde_json::Error> {
    let mut joined = Vec::new();
    for (key, value) in members {
        write_string(&mut joined, key)?;
        joined.push(b':');
        joined.extend_from_slice(value.get().as_bytes());
        joined.push(b',');
    }
    Ok(joined.into_boxed_slice())
}

/// Arguments to repeat in headers, by tool name.
#[derive(Debug, Default)]
pub(crate) struct ToolParamHeaders {
    any: AtomicBool,
    by_tool: Mutex<HashMap<String, Arc<ParamHeaders>>>,
}

impl ToolParamHeaders {
    pub(crate) fn for_tool(&self, tool: Option<&str>) -> Option<Arc<ParamHeaders>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.by_tool.lock().get(tool?).map(Arc::clone)
    }

    /// Replaces the table with that of a new tool list.
    ///
    /// Spec 2026-07-28, transports §Custom Headers: tools with invalid annotations are removed from the list,
    /// with a warning.
    pub(crate) fn update(&self, list: &mut List<Tool>) {
        let mut by_tool = HashMap::new();
        let mut index = 0;
        let skipped = &mut list.skipped;
        list.items.retain(|tool| {
            index += 1;
            match ParamHeaders::from_schema(&tool.input_schema) {
                Ok(None) => true,
                Ok(Some(mirror)) => {
                    by_tool.insert(tool.name.clone(), Arc::new(mirror));
                    true
                }
                Err(error) => {
                    tracing::warn!(tool = tool.name, %error, "tool skipped");
                    let (name, reason) = (Some(tool.name.clone()), error.to_string());
                    skipped.push(SkippedEntry { index: index - 1, name, reason, n_entries: 1 });
                    false
                }
            }
        });
        // A call in between finds the flag without the entry and sends no headers; the server then
        // reports a mismatch, and the call is retried.
        self.any.store(!by_tool.is_empty(), Ordering::Release);
        *self.by_tool.lock() = by_tool;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use serde::Serialize;
    use serde_json::json;
    use serde_json::value::RawValue;
    use toolrack_mcp::{EmptyResult, Method};

    use super::*;

    #[derive(Serialize)]
    struct Anything(serde_json::Value);

    impl Request for Anything {
        const METHOD: Method = Method::Ping;
        type Result = EmptyResult;
    }

    #[track_caller]
    fn check(
        template: &MetaTemplate,
        params: serde_json::Value,
        meta: PerRequestMeta<'_>,
        expected: &str,
    ) {
        let mut out = b"before".to_vec();
        let params = &Anything(params);
        RequestWithMeta { template, params, meta }.write(7, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}"));
    }

    fn modern() -> MetaTemplate {
        let client = Implementation { name: "t".to_owned(), ..Implementation::default() };
        MetaTemplate::for_modern(Revision::LATEST, &client, &ClientCapabilities::default()).unwrap()
    }

    const MEMBERS: &str = concat!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{},"#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"t","version":""}"#,
    );

    const REPORTING: PerRequestMeta<'_> =
        PerRequestMeta { progress: WantProgress::Yes, log_level: Some(LogLevel::Info), ..EMPTY };
    const EMPTY: PerRequestMeta<'_> = PerRequestMeta {
        progress: WantProgress::No,
        log_level: None,
        on_id: None,
        param_headers: None,
        forwarded_for: None,
    };

    #[test]
    fn legacy_meta_has_only_a_progress_token() {
        let legacy = MetaTemplate::default();
        check(&legacy, json!({}), PerRequestMeta::default(), "");
        check(&legacy, json!({"a": 1}), PerRequestMeta::default(), r#"{"a":1}"#);
        check(&legacy, json!({"a": 1}), REPORTING, r#"{"_meta":{"progressToken":7},"a":1}"#);
        check(&legacy, json!({}), REPORTING, r#"{"_meta":{"progressToken":7}}"#);
    }

    #[test]
    fn modern_meta_identifies_the_client() {
        let plain = format!(r#"{{"_meta":{{{MEMBERS}}}}}"#);
        check(&modern(), json!({}), PerRequestMeta::default(), &plain);
        let full = format!(
            r#"{{"_meta":{{"progressToken":7,{MEMBERS},"io.modelcontextprotocol/logLevel":"info"}},"a":1}}"#
        );
        check(&modern(), json!({"a": 1}), REPORTING, &full);
    }

    #[test]
    fn forwarded_request_carries_its_original_client() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (capabilities, trace) = (raw(r#"{"roots":{ }}"#), raw(r#""00-1""#));
        let forwarded_for =
            ForwardedFor::new(&capabilities, None, &[("traceparent", &trace)]).unwrap();
        let meta = PerRequestMeta { forwarded_for: Some(&forwarded_for), ..EMPTY };
        let expected = concat!(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{"roots":{ }},"traceparent":"00-1"},"a":1}"#
        );
        check(&modern(), json!({"a": 1}), meta, expected);
        // A legacy server gets no client identity, but the other members may be meant for it.
        let legacy = r#"{"_meta":{"traceparent":"00-1"},"a":1}"#;
        check(&MetaTemplate::default(), json!({"a": 1}), meta, legacy);
    }

    #[test]
    fn id_observer_runs_before_sending() {
        let observed = AtomicU64::new(0);
        let on_id = |id| observed.store(id, Ordering::Relaxed);
        let meta = PerRequestMeta { on_id: Some(&on_id), ..PerRequestMeta::default() };
        check(&MetaTemplate::default(), json!({}), meta, "");
        assert_eq!(observed.load(Ordering::Relaxed), 7);

        let observed = Arc::new(AtomicU64::new(0));
        let sink = Arc::clone(&observed);
        let forwarded_for = ForwardedFor::default()
            .with_id_observer(Arc::new(move |id| sink.store(id, Ordering::Relaxed)));
        check(
            &MetaTemplate::default(),
            json!({}),
            PerRequestMeta { forwarded_for: Some(&forwarded_for), ..EMPTY },
            "",
        );
        assert_eq!(observed.load(Ordering::Relaxed), 7);
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
    fn tools_with_invalid_param_headers_are_skipped() {
        let items = vec![tool("good", "A"), tool("bad", "A b")];
        let mut list = List { items, ..List::default() };
        let param_headers = ToolParamHeaders::default();
        param_headers.update(&mut list);
        let names: Vec<&str> = list.items.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let [skipped] = list.skipped.as_slice() else { panic!("{:?}", list.skipped) };
        assert_eq!((skipped.index, skipped.name.as_deref()), (1, Some("bad")));
        assert!(param_headers.for_tool(Some("good")).is_some());
        assert!(param_headers.for_tool(Some("bad")).is_none());
        param_headers.update(&mut List::default());
        assert!(param_headers.for_tool(Some("good")).is_none());
    }
}
