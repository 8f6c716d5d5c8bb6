//! Who wants to hear of changes: legacy subscriptions and log level, modern listen streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::client::{Client, Ticket};
use super::server::Server;
use crate::jsonrpc::error_code;
use crate::jsonrpc::{self, Answer, Params, Refusal};
use crate::revision::Era;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

#[derive(Debug, Default)]
pub(super) struct Audience {
    subscribed: Mutex<BTreeSet<String>>,
    /// The granted filter of each open listen request, by its id as the client wrote it.
    listening: Mutex<BTreeMap<String, Value>>,
    log_level: AtomicUsize,
}

impl Audience {
    pub(super) fn subscribe(&self, params: &Params<'_>) -> Result<Answer, Refusal> {
        let uri = params.uri.clone().ok_or_else(no_uri)?;
        lock(&self.subscribed).insert(uri);
        Ok(Answer::empty())
    }

    pub(super) fn unsubscribe(&self, params: &Params<'_>) -> Result<Answer, Refusal> {
        let uri = params.uri.as_ref().ok_or_else(no_uri)?;
        lock(&self.subscribed).remove(uri);
        Ok(Answer::empty())
    }

    /// Forgets a listen stream, if the id is one's.
    pub(super) fn hang_up(&self, id: &str) {
        lock(&self.listening).remove(id);
    }

    pub(super) fn set_level(&self, params: &Params<'_>) -> Result<Answer, Refusal> {
        let level = params.level.as_deref().unwrap_or_default();
        let Some(rank) = jsonrpc::severity(level) else {
            return Err(Refusal::new(
                error_code::INVALID_PARAMS,
                format!("no log level `{level}`"),
            ));
        };
        self.log_level.store(rank, Ordering::Relaxed);
        Ok(Answer::empty())
    }

    pub(super) fn log_level(&self) -> usize {
        self.log_level.load(Ordering::Relaxed)
    }

    /// The notification as a legacy server sends it, or on the first listen stream if there is one.
    pub(super) fn tools_changed_line(&self) -> Vec<u8> {
        match lock(&self.listening).first_key_value() {
            Some((id, _)) => on_stream(TOOLS_CHANGED, id, Map::new()),
            None => jsonrpc::notification(TOOLS_CHANGED, None),
        }
    }
}

impl Server {
    /// Opens a stream of changes; its request stays unanswered until one side ends it.
    pub(super) fn listen(self: &Arc<Self>, ticket: Ticket, params: &Params<'_>) {
        let Some(Value::Object(wanted)) = &params.notifications else {
            let refusal = Refusal::new(error_code::INVALID_PARAMS, "`notifications` is missing");
            return self.settle(ticket, Answer::Refused(refusal));
        };
        let known = ["toolsListChanged", "resourceSubscriptions"];
        let granted: Map<String, Value> = wanted
            .iter()
            .filter(|(kind, _)| known.contains(&kind.as_str()))
            .map(|(kind, filter)| (kind.clone(), filter.clone()))
            .collect();
        let granted = Value::Object(granted);
        let params = Map::from_iter([("notifications".to_owned(), granted.clone())]);
        let line = on_stream("notifications/subscriptions/acknowledged", &ticket.id, params);
        let client = &ticket.origin.client;
        // Whoever reads the acknowledgement may count on hearing of the next change.
        self.welcome(client);
        let mut listening = lock(&client.audience.listening);
        // Under the lock, so that no change is told of before the stream is acknowledged.
        ticket.outlet().put(&line);
        listening.insert(ticket.id.clone(), granted);
    }

    /// Ends every listen stream from the server's side.
    pub(super) fn end_listens(&self, how: &str) -> usize {
        self.clients().iter().map(|client| client.end_listens(how)).sum()
    }

    pub(super) fn tell_tools_changed(&self) {
        for client in self.clients().into_iter().filter(|_| self.options.announces) {
            client.tell_tools_changed();
        }
    }

    pub(super) fn tell_resource_updated(&self, uri: &str) {
        self.count_update();
        for client in self.clients() {
            client.tell_resource_updated(uri);
        }
    }
}

impl Client {
    fn end_listens(&self, how: &str) -> usize {
        let ended = std::mem::take(&mut *lock(&self.audience.listening));
        for id in ended.keys() {
            if how == "cancelled" {
                let params = json!({ "requestId": raw(id) });
                self.outlet.put(&jsonrpc::notification("notifications/cancelled", Some(&params)));
                continue;
            }
            let members = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
            let body = Answer::Complete(members).body(Era::Modern, "");
            self.outlet.answer(&jsonrpc::response(id, &body));
        }
        if !ended.is_empty() {
            self.outlet.flush();
            self.outlet.finish();
        }
        ended.len()
    }

    fn tell_tools_changed(&self) {
        let wants = |filter: &Value| filter.get("toolsListChanged") == Some(&Value::Bool(true));
        self.tell_listeners(TOOLS_CHANGED, &Map::new(), wants);
        if self.agreed().is_some() {
            self.outlet.put(&jsonrpc::notification(TOOLS_CHANGED, None));
        }
    }

    fn tell_resource_updated(&self, uri: &str) {
        let method = "notifications/resources/updated";
        let params = Map::from_iter([("uri".to_owned(), Value::from(uri))]);
        let wants = |filter: &Value| {
            let uris = filter.get("resourceSubscriptions").and_then(Value::as_array);
            uris.is_some_and(|uris| uris.iter().any(|uris| uris == uri))
        };
        self.tell_listeners(method, &params, wants);
        if lock(&self.audience.subscribed).contains(uri) {
            self.outlet.put(&jsonrpc::notification(method, Some(&Value::Object(params))));
        }
    }

    fn tell_listeners(
        &self,
        method: &str,
        params: &Map<String, Value>,
        wants: impl Fn(&Value) -> bool,
    ) {
        let listening = lock(&self.audience.listening);
        for (id, _) in listening.iter().filter(|(_, filter)| wants(filter)) {
            self.outlet.put(&on_stream(method, id, params.clone()));
        }
    }
}

/// Spec 2026-07-28, subscriptions: every message of a stream carries the id of the request that opened it.
fn on_stream(method: &str, id: &str, mut params: Map<String, Value>) -> Vec<u8> {
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": raw(id) });
    params.insert("_meta".to_owned(), meta);
    jsonrpc::notification(method, Some(&Value::Object(params)))
}

/// An id came as JSON, so it is JSON.
fn raw(id: &str) -> Value {
    serde_json::from_str(id).unwrap_or_default()
}

fn no_uri() -> Refusal {
    Refusal::new(error_code::INVALID_PARAMS, "`uri` is missing")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
