//! Subscriptions of a client: legacy subscriptions and log level, modern listen streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::client::{Client, MessageContext, PendingRequest};
use super::server::Server;
use crate::jsonrpc::{self, Params, Response, RpcError, RpcResult};
use crate::revision::Era;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    subscribed: Mutex<BTreeSet<String>>,
    /// Granted filter of each listen request, by its id as the client wrote it.
    listeners: Mutex<BTreeMap<String, Value>>,
    log_level: AtomicUsize,
}

impl Subscriptions {
    pub(super) fn subscribe(&self, params: &Params<'_>) -> RpcResult {
        let uri = params.uri.clone().ok_or_else(no_uri)?;
        self.subscribed.lock().insert(uri);
        Ok(Response::empty())
    }

    pub(super) fn unsubscribe(&self, params: &Params<'_>) -> RpcResult {
        let uri = params.uri.as_ref().ok_or_else(no_uri)?;
        self.subscribed.lock().remove(uri);
        Ok(Response::empty())
    }

    /// Ends the listen stream with this id, if there is one.
    pub(super) fn end_listen(&self, id: &str) {
        self.listeners.lock().remove(id);
    }

    pub(super) fn set_level(&self, params: &Params<'_>) -> RpcResult {
        let severity = jsonrpc::severity(params.level.as_deref().unwrap_or_default())?;
        self.log_level.store(severity, Ordering::Relaxed);
        Ok(Response::empty())
    }

    pub(super) fn log_level(&self) -> usize {
        self.log_level.load(Ordering::Relaxed)
    }

    /// Change notification in legacy form, or on the first listen stream if there is one.
    pub(super) fn tools_changed_line(&self) -> Vec<u8> {
        match self.listeners.lock().first_key_value() {
            Some((id, _)) => on_stream(TOOLS_CHANGED, id, Map::new()),
            None => jsonrpc::notification_line(TOOLS_CHANGED, None),
        }
    }
}

impl MessageContext {
    /// Opens a listen stream; its request stays pending until one side ends it.
    pub(super) fn listen(&self, pending: PendingRequest, params: &Params<'_>) {
        let Some(Value::Object(wanted)) = &params.notifications else {
            let rpc_error = RpcError::invalid_params("`notifications` is missing");
            return pending.respond(Response::Error(rpc_error));
        };
        let known = self.server.content.change_kinds();
        let mut granted = wanted.clone();
        granted.retain(|kind, _| known.contains(&kind.as_str()));
        let granted = Value::Object(granted);
        let params = Map::from_iter([("notifications".to_owned(), granted.clone())]);
        let line = on_stream("notifications/subscriptions/acknowledged", &pending.id, params);
        // Before the acknowledgement: a client that has read it must get the next change.
        self.server.add_client(&self.client);
        let mut listeners = self.client.subscriptions.listeners.lock();
        // Under the lock, so that no change precedes the acknowledgement.
        self.sink.send(&line);
        listeners.insert(pending.id, granted);
    }
}

impl Server {
    /// Ends every listen stream from the server side.
    pub(super) fn end_listens(&self, how: &str) -> usize {
        self.clients().iter().map(|client| client.end_listens(how)).sum()
    }

    /// Announces a change of the `tools` or `prompts` in the way of each client's era.
    pub(crate) fn notify_list_changed(&self, list: &str) {
        let method = format!("notifications/{list}/list_changed");
        let kind = format!("{list}ListChanged");
        let wants = |filter: &Value| filter.get(&kind) == Some(&Value::Bool(true));
        for client in self.clients() {
            client.notify_listeners(&method, &Map::new(), wants);
            if client.negotiated().is_some() {
                client.sink.send(&jsonrpc::notification_line(&method, None));
            }
        }
    }

    pub(super) fn notify_resource_updated(&self, uri: &str) {
        let method = "notifications/resources/updated";
        let params = Map::from_iter([("uri".to_owned(), Value::from(uri))]);
        let wants = |filter: &Value| {
            let uris = filter.get("resourceSubscriptions").and_then(Value::as_array);
            uris.is_some_and(|uris| uris.iter().any(|subscribed| subscribed == uri))
        };
        for client in self.clients() {
            client.notify_listeners(method, &params, wants);
            if client.subscriptions.subscribed.lock().contains(uri) {
                client.sink.send(&jsonrpc::notification_line(method, Some(&json!(params))));
            }
        }
    }
}

impl Client {
    fn end_listens(&self, how: &str) -> usize {
        let ended = std::mem::take(&mut *self.subscriptions.listeners.lock());
        for id in ended.keys() {
            if how == "cancelled" {
                let params = json!({ "requestId": raw(id) });
                self.sink
                    .send(&jsonrpc::notification_line("notifications/cancelled", Some(&params)));
                continue;
            }
            let members = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
            let body = Response::Complete(members).body(Era::Modern, "");
            self.sink.respond(jsonrpc::response_line(id, &body).as_bytes());
        }
        if !ended.is_empty() {
            self.sink.flush();
            self.sink.finish();
        }
        ended.len()
    }

    fn notify_listeners(
        &self,
        method: &str,
        params: &Map<String, Value>,
        wants: impl Fn(&Value) -> bool,
    ) {
        let listeners = self.subscriptions.listeners.lock();
        for (id, _) in listeners.iter().filter(|(_, filter)| wants(filter)) {
            self.sink.send(&on_stream(method, id, params.clone()));
        }
    }
}

/// Spec 2026-07-28, subscriptions: every message of a stream carries the id of the request that opened it.
fn on_stream(method: &str, id: &str, mut params: Map<String, Value>) -> Vec<u8> {
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": raw(id) });
    params.insert("_meta".to_owned(), meta);
    jsonrpc::notification_line(method, Some(&Value::Object(params)))
}

/// The id is raw JSON, so this always parses.
fn raw(id: &str) -> Value {
    serde_json::from_str(id).unwrap_or_default()
}

fn no_uri() -> RpcError {
    RpcError::invalid_params("`uri` is missing")
}
