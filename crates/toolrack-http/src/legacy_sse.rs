//! Servers of 2024: messages go to one address, and everything comes back on a stream from another.
//!
//! **Invariant:** nothing is sent to an address of another origin, whatever the stream says.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_transport::RawJson;
use toolrack_transport::{Inbox as _, LineError, TransportError, plain_text};

use crate::endpoint_url::Address;
use crate::request_headers::Beside;
use crate::response::Reply;
use crate::response_headers::Kind;
use crate::rpc_call::Fit;
use crate::rpc_call::broke_off;
use crate::session::{Loss, Route, loss_of};
use crate::sse::{Event, EventReader};
use crate::status_mapping::{no_answer, refusal};
use crate::transport::{Errand, REFUSAL_BYTES, Shared};

/// How long a server may take to name the address for messages.
const ENDPOINT_LIMIT: Duration = Duration::from_secs(10);

/// A stream on its way.
struct Stream {
    reply: Reply,
    reader: EventReader,
    broken: CancellationToken,
}

impl Shared {
    /// Begins a session by this route.
    pub(crate) async fn greet_double(
        self: &Arc<Self>,
        body: &[u8],
        id: u64,
        errand: &Errand<'_>,
    ) -> Result<RawJson, LineError> {
        let route = self.open_double().await?;
        let Route::Double { endpoint, broken } = route.clone() else { return Err(broke_off()) };
        // From here on the answer comes on the stream, to whoever waits for its id.
        self.session.begin(route);
        let mut reply = self.post(errand, &endpoint, &Beside::default(), body).await?;
        self.answer_on_stream(&mut reply, id, &broken).await
    }

    /// Opens the stream and waits for the address that messages go to.
    pub(crate) async fn open_double(self: &Arc<Self>) -> Result<Route, LineError> {
        let late = |_elapsed| LineError::not_sent(TransportError::timed_out(ENDPOINT_LIMIT));
        timeout(ENDPOINT_LIMIT, self.open_double_now()).await.map_err(late)?
    }

    async fn open_double_now(self: &Arc<Self>) -> Result<Route, LineError> {
        let mut reply = self.get(&Beside::default()).await?;
        if !reply.status.is_success() {
            let body = reply.beginning(REFUSAL_BYTES).await;
            return Err(LineError::not_sent(refusal(reply.status, &body).error));
        }
        if reply.kind() != Kind::Events {
            return Err(LineError::not_sent(no_answer(reply.status, "no stream", b"")));
        }
        let mut reader = EventReader::new(self.max_message_bytes);
        let mut early = Vec::new();
        let endpoint = loop {
            let piece = reply.piece(self.max_message_bytes).await;
            let piece = piece.map_err(|fault| self.body_failure(fault))?.ok_or_else(broke_off)?;
            reader.feed(&piece, &mut |event| early.push(event));
            let found = early.iter().position(is_endpoint);
            if let Some(Event::Named(_, reference)) = found.map(|place| early.remove(place)) {
                break self.endpoint(&reference)?;
            }
            early.clear();
        };
        let broken = CancellationToken::new();
        let route = Route::Double { endpoint: Arc::new(endpoint), broken: broken.clone() };
        for event in &early {
            self.pass_on(event);
        }
        let stream = Stream { reply, reader, broken };
        let shared = Arc::clone(self);
        self.staff.employ(async move {
            let stop = shared.staff.stop.clone();
            tokio::select! {
                () = shared.attend(stream) => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(route)
    }

    /// Spec 2024-11-05, transports §HTTP with SSE names no rule; without one, a server could have our
    /// credentials sent anywhere.
    fn endpoint(&self, reference: &[u8]) -> Result<Address, LineError> {
        let text = String::from_utf8_lossy(reference);
        self.courier.address.join(text.trim()).map_err(|fault| {
            let reason =
                format!("the address for messages: {}", plain_text(&fault.to_string(), 200));
            LineError::not_sent(io::Error::new(io::ErrorKind::InvalidData, reason))
        })
    }

    /// Waits until the stream ends. The answer itself is handed over by the table of open requests.
    pub(crate) async fn answer_on_stream(
        &self,
        reply: &mut Reply,
        id: u64,
        broken: &CancellationToken,
    ) -> Result<RawJson, LineError> {
        if !reply.status.is_success() {
            let body = reply.beginning(REFUSAL_BYTES).await;
            return Err(refusal(reply.status, &body));
        }
        // Some servers answer in place after all.
        if reply.kind() == Kind::Json
            && let Ok(body) = reply.whole(self.max_message_bytes).await
            && let Fit::Answer(answer) = self.fit(&body, id)
        {
            return answer;
        }
        reply.leave(&self.staff);
        broken.cancelled().await;
        Err(broke_off())
    }

    fn pass_on(&self, event: &Event) {
        match event {
            Event::Message(message) => {
                self.inbound.accept_owned(message);
            }
            Event::Oversize(head) => {
                self.inbound.oversize(head, b"", self.max_message_bytes);
            }
            Event::Named(name, _) => tracing::trace!(name, "an event of no use"),
        }
    }

    /// Reads a stream that stays open by design, to its end. Any byte is a sign of life.
    pub(crate) async fn drain(&self, reply: &mut Reply, reader: &mut EventReader) {
        reply.idle = Some(self.stream_idle);
        loop {
            match reply.piece(self.max_message_bytes).await {
                Ok(Some(piece)) => reader.feed(&piece, &mut |event| self.pass_on(&event)),
                Ok(None) => return,
                Err(fault) => {
                    let error = self.body_failure(fault);
                    tracing::debug!(error = ?error.error, "a stream of the server broke");
                    return;
                }
            }
        }
    }

    /// Serves a stream, and once it has ended sees to it that there is a new session.
    async fn attend(self: &Arc<Self>, mut stream: Stream) {
        tokio::select! {
            () = self.drain(&mut stream.reply, &mut stream.reader) => {}
            () = stream.broken.cancelled() => return,
        }
        stream.broken.cancel();
        let standing = self.session.standing();
        let is_current = match &standing.route {
            Route::Double { broken, .. } => broken.is_cancelled(),
            Route::Single { .. } => false,
        };
        drop(stream);
        if !is_current || !self.session.claim_renewal(standing.epoch) {
            return;
        }
        let shared = Arc::clone(self);
        self.staff.employ(async move {
            let stop = shared.staff.stop.clone();
            tokio::select! {
                () = reopen(&shared) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// Begins a new session, however long it takes.
async fn reopen(shared: &Arc<Shared>) {
    loop {
        shared.session.pause().await;
        match shared.greet_again().await {
            Ok(()) => return shared.gate.renewed(),
            Err(error) => {
                tracing::debug!(%error, "no new stream could be opened");
                let loss = loss_of(error.error);
                let is_hopeless = matches!(loss, Loss::Refused(_));
                shared.session.give_up(loss);
                // Somebody has to log in; the next request comes back to this.
                if is_hopeless || !shared.session.claim_renewal(shared.session.standing().epoch) {
                    return;
                }
            }
        }
    }
}

fn is_endpoint(event: &Event) -> bool {
    matches!(event, Event::Named(name, _) if name == "endpoint")
}
