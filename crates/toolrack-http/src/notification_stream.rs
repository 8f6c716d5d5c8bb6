//! The stream on which a server of 2025 speaks without being asked.
//!
//! **Invariant:** however the server treats it, the stream is asked for no oftener than [`Backoff`] allows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{Backoff, Inbox as _, TransportError};

use crate::response_headers::Kind;
use crate::session::{Phase, Route, SESSION_WEIGHT, Standing, weigh};
use crate::sse::EventReader;
use crate::transport::Shared;

/// What a refused login counts, beyond one failure: it took several requests, and somebody has to act.
const LOGIN_WEIGHT: u32 = 8;

/// What came of asking for the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// It was open.
    Taken,
    /// Perhaps another time.
    Later,
    /// The session is unknown.
    Unknown,
    /// We are not let in.
    Locked,
    /// There is none.
    None,
}

impl Shared {
    /// Begins to listen, once for all sessions of the line.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        let heard = shared.has_heard.clone().drop_guard();
        self.staff.employ(async move {
            let _heard = heard;
            let stop = shared.staff.stop.clone();
            tokio::select! {
                () = listen(&shared) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn listen(shared: &Arc<Shared>) {
    let mut news = shared.session.watch();
    let mut reader = EventReader::new(shared.max_message_bytes);
    let mut backoff = Backoff::default();
    // The last session that had a stream.
    let mut opened = None;
    let mut epoch = 0;
    loop {
        let is_open = |standing: &Standing| matches!(standing.phase, Phase::Open);
        let Ok(standing) = news.wait_for(is_open).await.map(|standing| standing.clone()) else {
            return;
        };
        if matches!(standing.route, Route::Double { .. }) {
            return;
        }
        if std::mem::replace(&mut epoch, standing.epoch) != standing.epoch {
            // Places in the streams of an old session mean nothing in a new one.
            reader = EventReader::new(shared.max_message_bytes);
        }
        reader.restart();
        let over = news.wait_for(|now| now.epoch != standing.epoch);
        let offer = tokio::select! {
            offer = listen_once(shared, &standing, &mut reader, &mut backoff) => offer,
            _changed = over => Offer::Taken,
        };
        match offer {
            Offer::None => return,
            // Servers that have no such stream often say that there is nothing here.
            Offer::Unknown if opened.is_none() => return,
            Offer::Unknown if opened == Some(epoch) => {
                weigh(&mut backoff, SESSION_WEIGHT);
                shared.renew(epoch);
            }
            Offer::Taken => opened = Some(epoch),
            Offer::Locked => weigh(&mut backoff, LOGIN_WEIGHT),
            Offer::Later | Offer::Unknown => {}
        }
        let wait = backoff.failed(Instant::now(), fastrand::f64());
        sleep(wait.max(reader.retry().unwrap_or_default())).await;
    }
}

/// Asks for the stream and serves it to its end.
async fn listen_once(
    shared: &Arc<Shared>,
    standing: &Standing,
    reader: &mut EventReader,
    backoff: &mut Backoff,
) -> Offer {
    let beside = shared.session_headers(standing).resumed(reader.last_id());
    let asked = shared.get(&beside).await;
    shared.has_heard.cancel();
    let mut reply = match asked {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%error, "the server's stream cannot be opened");
            let is_login = matches!(error.error, TransportError::Unauthorized(_));
            return if is_login { Offer::Locked } else { Offer::Later };
        }
    };
    if reply.status.is_success() && reply.kind() == Kind::Events {
        backoff.worked(Instant::now());
        if shared.is_late.swap(false, Ordering::AcqRel) {
            shared.gate.renewed();
        }
        shared.drain(&mut reply, reader).await;
        return Offer::Taken;
    }
    let status = reply.status;
    tracing::debug!(%status, "the server's stream cannot be opened");
    reply.leave(&shared.staff);
    match status {
        // Spec 2025-11-25, transports §Listening: not offered, which is normal.
        StatusCode::METHOD_NOT_ALLOWED => Offer::None,
        StatusCode::NOT_FOUND => Offer::Unknown,
        _ => Offer::Later,
    }
}
