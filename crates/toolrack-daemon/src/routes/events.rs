//! `/api/events`: event stream (SSE).

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

use crate::event_log::{Reader, StreamItem, TimedEvent};
use crate::problem::Problem;
use crate::state::App;

/// A stream ends after this time, so that a client that vanished without closing its connection does not hold a place
/// for ever. A live client reconnects and resumes.
const MAX_STREAM_AGE: Duration = Duration::from_hours(1);
/// Interval of keep-alive comments.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// State of one event stream.
struct EventStream {
    app: App,
    reader: Reader,
    ends_at: Instant,
    _permit: OwnedSemaphorePermit,
}

/// Event stream (server-sent events)
///
/// Each event has an `id`; a client that reconnects with it in `Last-Event-ID` resumes after it. A client that was too
/// slow, or reconnects too late, gets an event `lost` with the number of events that it missed.
#[utoipa::path(get, path = "/api/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Resume after this event")),
    responses((status = 200, content_type = "text/event-stream", body = TimedEvent), (status = "default", body = Problem)))]
pub(super) async fn stream(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&app.event_streams).try_acquire_owned();
    let permit = permit.map_err(|_full| Problem::unavailable("too many event streams"))?;
    let last_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let reader = app.recorder.events.reader(last_id);
    let ends_at = Instant::now() + MAX_STREAM_AGE;
    let stream = EventStream { app, reader, ends_at, _permit: permit };
    let events = stream::unfold(stream, |mut stream| async {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

impl EventStream {
    async fn next(&mut self) -> Option<Event> {
        let item = tokio::select! {
            biased;
            item = timeout_at(self.ends_at, self.reader.next()) => item.ok()??,
            // After the reader, so that the client still gets the `stopping` event.
            () = self.app.shutdown.cancelled() => return None,
        };
        let (number, name, data) = match item {
            StreamItem::Event(number, event) => {
                (number, event.event.name(), serde_json::to_string(&*event).unwrap_or_default())
            }
            StreamItem::Missed(number, n_events) => {
                (number, "lost", json!({ "type": "lost", "n_events": n_events }).to_string())
            }
        };
        let id = self.app.recorder.events.event_id(number);
        Some(Event::default().id(id).event(name).data(data))
    }
}
