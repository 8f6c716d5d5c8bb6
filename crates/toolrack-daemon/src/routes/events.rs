//! `/api/events`: what happens, as it happens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::HeaderMap;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::event_log::Told;
use crate::event_log::{Portion, Reader};
use crate::problem::Problem;
use crate::state::App;

/// A stream ends by itself after this time, so that a reader that is gone without a word does not stay for ever. One
/// that is there comes back and goes on where it was.
const LIFE: Duration = Duration::from_hours(1);
/// How often a sign of life is sent if nothing happens.
const PULSE: Duration = Duration::from_secs(15);

/// One reader of events.
struct Listener {
    app: App,
    reader: Reader,
    until: Instant,
    _permit: OwnedSemaphorePermit,
}

/// What happens, as server-sent events
///
/// Each event has an `id`; a reader that comes back with it in `Last-Event-ID` goes on behind it. A reader that was
/// too slow, or comes back too late, gets an event `lost` with the number of events that it missed.
#[utoipa::path(get, path = "/api/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Where to go on")),
    responses((status = 200, content_type = "text/event-stream", body = Told), (status = "default", body = Problem)))]
pub(super) async fn stream(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&app.streams).try_acquire_owned();
    let permit = permit.map_err(|_full| Problem::unavailable("too many readers of events"))?;
    let last = headers.get("last-event-id").and_then(|it| it.to_str().ok());
    let reader = app.chronicle.feed.read(last);
    let listener = Listener { app, reader, until: Instant::now() + LIFE, _permit: permit };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(PULSE)).into_response())
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        let portion = tokio::select! {
            biased;
            portion = timeout_at(self.until, self.reader.next()) => portion.ok()??,
            // Last, so that whoever reads hears of the end before it comes.
            () = self.app.stop.cancelled() => return None,
        };
        let feed = &self.app.chronicle.feed;
        let (number, kind, data) = match portion {
            Portion::Event(number, told) => {
                (number, told.what.kind(), serde_json::to_string(&*told).unwrap_or_default())
            }
            Portion::Missed(number, n_events) => {
                (number, "lost", json!({ "type": "lost", "n_events": n_events }).to_string())
            }
        };
        Some(Event::default().id(feed.id(number)).event(kind).data(data))
    }
}
