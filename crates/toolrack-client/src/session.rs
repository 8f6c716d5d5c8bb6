//! One conversation: a line on which a revision has been agreed, and everything that belongs to it.
//!
//! **Invariant:** the revision never changes. A modern conversation is never made a legacy one.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{
    Answer, Era, Implementation, LogLevel, Method, Request, ResultType, Revision,
    ServerCapabilities,
};
use toolrack_transport::{Abandon, Line, Medium, Outgoing, Patience};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::call::CallOptions;
use crate::error::CallError;
use crate::incoming::Mailbox;
use crate::lock::lock;
use crate::pagination::Shelf;
use crate::param_headers::Mirrors;
use crate::progress::Watch;
use crate::request_meta::{Envelope, Extra, Packed, Reports};
use crate::result_type::kind_of;
use crate::server_request_handler::Respondent;
use crate::subscriptions::Subscription;
use crate::timeouts::{Limits, Timeouts};

/// One conversation.
pub(crate) struct Session {
    pub(crate) line: Arc<dyn Line>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) envelope: Envelope,
    pub(crate) respondent: Respondent,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) card: ServerCard,
    pub(crate) shelf: Shelf,
    /// The arguments that are said beside the message, if any tool has such.
    pub(crate) mirrors: Mirrors,
    /// Whether any tool can be called as a task only.
    pub(crate) has_task_tools: AtomicBool,
    /// The level of log messages that was asked for. Modern requests repeat it.
    pub(crate) log_level: Mutex<Option<LogLevel>>,
    /// The subscription to changes of lists.
    pub(crate) lists: Mutex<Option<Subscription>>,
    /// The subscriptions to resources, by URI.
    pub(crate) resources: Mutex<HashMap<String, Subscription>>,
    /// The resources that a legacy server was asked to tell about.
    pub(crate) subscribed: Mutex<BTreeSet<String>>,
    /// Every task of the conversation.
    pub(crate) tracker: TaskTracker,
    /// What the server has to hear before the conversation ends.
    pub(crate) farewells: TaskTracker,
    /// Ends every task of the conversation.
    pub(crate) stop: CancellationToken,
}

/// What a server says about itself when the conversation begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerCard {
    pub(crate) server: Option<Implementation>,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
}

/// Something that a server has to declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    Tools,
    Resources,
    Subscriptions,
    Prompts,
    Completion,
    Logging,
}

impl Feature {
    fn is_in(self, capabilities: &ServerCapabilities) -> bool {
        match self {
            Feature::Tools => capabilities.tools.is_some(),
            Feature::Resources => capabilities.resources.is_some(),
            Feature::Subscriptions => capabilities.resources.is_some_and(|it| it.subscribe),
            Feature::Prompts => capabilities.prompts.is_some(),
            Feature::Completion => capabilities.completions,
            Feature::Logging => capabilities.logging,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Feature::Tools => "tools",
            Feature::Resources => "resources",
            Feature::Subscriptions => "subscriptions to resources",
            Feature::Prompts => "prompts",
            Feature::Completion => "completion",
            Feature::Logging => "log messages",
        }
    }
}

impl Session {
    pub(crate) fn revision(&self) -> Revision {
        self.respondent.revision
    }

    pub(crate) fn era(&self) -> Era {
        self.revision().era()
    }

    /// Spec 2025-06-18, lifecycle §Operation: only what was declared may be used. Before that it was
    /// only recommended, and many old servers declare less than they have.
    pub(crate) fn require(&self, feature: Feature) -> Result<(), CallError> {
        if feature.is_in(&self.card.capabilities) || self.revision() < Revision::R2025_06_18 {
            return Ok(());
        }
        Err(CallError::Unsupported { feature: feature.name() })
    }

    /// Sends one request and gives its raw result, whatever kind of result it is.
    pub(crate) async fn exchange<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let Some(on_progress) = &options.on_progress else {
            return self.send(params, self.patience(options), self.usual_extra(options)).await;
        };
        let watch = self.mailbox.watchers.watch(on_progress);
        // Boxed, so that a call without a watcher stays small.
        Box::pin(watch.beside(self.exchange_seen(params, options, &watch))).await
    }

    /// The same, with somebody who may watch for longer than this one request takes.
    pub(crate) async fn exchange_seen<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
        watch: &Watch<'_>,
    ) -> Result<RawJson, CallError> {
        let on_id = |id| watch.begin(id);
        let extra = Extra { on_id: Some(&on_id), ..self.usual_extra(options) };
        self.send(params, self.patience(options), extra).await
    }

    fn usual_extra<'a>(&self, options: &'a CallOptions) -> Extra<'a> {
        let log_level = options.log_level.or(*lock(&self.log_level));
        let behalf = options.on_behalf.as_deref();
        Extra { progress: Reports::Wanted, log_level, behalf, ..Extra::default() }
    }

    /// Sends a request that nothing is reported about, and gives its raw result.
    pub(crate) async fn request<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let extra = Extra { behalf: options.on_behalf.as_deref(), ..Extra::default() };
        self.send(params, self.patience(options), extra).await
    }

    /// Sends a request that is answered in one go, and reads the answer.
    pub(crate) async fn ask<P: Request + Sync>(
        &self,
        params: &P,
        patience: Patience,
    ) -> Result<P::Answer, CallError> {
        let raw = self.send(params, patience, Extra::default()).await?;
        let raw = self.complete(P::METHOD, raw)?;
        decode::<P>(&raw)
    }

    /// Spec 2026-07-28, basic §Result Types: what is neither complete nor asked for is invalid.
    pub(crate) fn complete(&self, method: Method, raw: RawJson) -> Result<RawJson, CallError> {
        match self.kind(&raw) {
            ResultType::Complete => Ok(raw),
            kind => Err(CallError::unexpected(method, format!("unexpected result type {kind:?}"))),
        }
    }

    /// The legacy era knows one kind of result, whatever a server writes.
    pub(crate) fn kind(&self, raw: &RawJson) -> ResultType {
        match self.era() {
            Era::Legacy => ResultType::Complete,
            Era::Modern => kind_of(raw.as_bytes()),
        }
    }

    /// How long a request waits that has no options of its own.
    pub(crate) fn usual_patience(&self) -> Patience {
        self.patience(&CallOptions::default())
    }

    /// Answers something the server asked. A server that does not read its answers loses them.
    pub(crate) fn respond<T: Serialize>(&self, id: &RequestId, outcome: Result<T, JsonRpcError>) {
        respond(&*self.line, id, outcome);
    }

    pub(crate) fn patience(&self, options: &CallOptions) -> Patience {
        let answer = options.timeout.unwrap_or(self.timeouts.call);
        let at_most = options.at_most.unwrap_or(self.timeouts.at_most.max(answer));
        Patience { answer, at_most }
    }

    async fn send<P: Request + Sync>(
        &self,
        params: &P,
        patience: Patience,
        extra: Extra<'_>,
    ) -> Result<RawJson, CallError> {
        let mirror = self.mirrors.of(params.subject());
        let extra = Extra { mirror: mirror.as_deref(), ..extra };
        let request = Outgoing {
            method: P::METHOD.as_str(),
            params: &Packed { envelope: &self.envelope, params, extra },
            patience,
            abandon: Abandon::Tell,
        };
        Ok(self.line.request(request).await?)
    }

    /// Whether every request is an exchange that stands for itself.
    pub(crate) fn is_stateless(&self) -> bool {
        self.era() == Era::Modern && self.line.medium() == Medium::Exchange
    }
}

/// Reads the answer to a request.
pub(crate) fn decode<P: Request>(raw: &RawJson) -> Result<P::Answer, CallError> {
    P::Answer::decode(raw.as_bytes()).map_err(|fault| CallError::undecodable(P::METHOD, fault))
}

/// Answers something that was asked on `line`.
pub(crate) fn respond<T: Serialize>(
    line: &dyn Line,
    id: &RequestId,
    outcome: Result<T, JsonRpcError>,
) {
    let written = outcome.and_then(|result| {
        to_raw_value(&result).map_err(|fault| JsonRpcError::new(-32603, fault.to_string()))
    });
    let answered = line.answer(id, written.as_deref());
    answered.unwrap_or_else(|error| tracing::debug!(%id, %error, "an answer was not sent"));
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.respondent.server)
            .field("revision", &self.revision())
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_task::attend;

    fn size_of_future<F: Future>(_: impl Fn(Arc<Session>) -> F) -> usize {
        size_of::<F>()
    }

    /// Hundreds of servers may be connected and idle. What a server says about itself comes on top.
    #[test]
    fn an_idle_conversation_is_small() {
        let sizes = [size_of::<Session>(), size_of::<Mailbox>(), size_of_future(attend)];
        assert!(sizes.iter().sum::<usize>() < 3 << 10, "{sizes:?} bytes");
    }
}
