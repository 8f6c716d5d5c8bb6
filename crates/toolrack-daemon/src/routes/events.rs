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
use tokio::time::{Instant, timeout_at};

use crate::event_log::{StreamItem, TimedEvent, event_type};
use crate::problem::Problem;
use crate::state::App;

/// A stream ends after this time, so that a client that vanished without closing its connection does not hold a place
/// for ever. A live client reconnects and resumes.
const MAX_STREAM_AGE: Duration = Duration::from_hours(1);
/// Interval of keep-alive comments.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Event stream (server-sent events)
///
/// Each event has an `id`; a client that reconnects with it in `Last-Event-ID` resumes after it. A client that was too
/// slow, or reconnects too late, gets an event `lost` with the number of events that it missed.
#[utoipa::path(get, path = "/api/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Resume after this event")), responses((status = 200, content_type = "text/event-stream", body = TimedEvent)))]
pub(super) async fn stream(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&app.event_streams).try_acquire_owned();
    let permit = permit.map_err(|_full| Problem::unavailable("too many event streams"))?;
    let last_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let reader = app.recorder.events.reader(last_id);
    let ends_at = Instant::now() + MAX_STREAM_AGE;
    // The permit is part of the state, so it is held until the stream ends.
    let events =
        stream::unfold((app, reader, permit), move |(app, mut reader, permit)| async move {
            let item = tokio::select! {
                biased;
                item = timeout_at(ends_at, reader.next()) => item.ok()??,
                // After the reader, so that the client still gets the `stopping` event.
                () = app.shutdown.graceful.cancelled() => return None,
            };
            let (number, data) = match item {
                StreamItem::Event(number, event) => (number, serde_json::to_string(&*event)),
                StreamItem::Missed(number, n_events) => {
                    (number, Ok(json!({ "type": "lost", "n_events": n_events }).to_string()))
                }
            };
            let (id, data) = (app.recorder.events.id(number), data.unwrap_or_default());
            let event = Event::default().id(id).event(event_type(&data)).data(data);
            Some((Ok::<_, Infallible>(event), (app, reader, permit)))
        });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}
