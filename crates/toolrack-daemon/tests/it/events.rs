//! `/api/events`: streaming and resuming.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::fixture::{Client, Fixture};
use crate::http::TIMEOUT;

/// One SSE event.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// An SSE client.
struct EventClient {
    lines: BufReader<TcpStream>,
}

impl EventClient {
    fn new(client: &Client, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(client.addr).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{last}\r\n",
            client.addr, client.token
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Self { lines: BufReader::new(stream) };
        assert!(events.line().unwrap().contains(" 200 "));
        while !events.line().unwrap().is_empty() {}
        events
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.lines.read_line(&mut line).unwrap();
        (n > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event, or `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        let (mut id, mut name, mut data) = (String::new(), String::new(), None);
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("data", value)) => data = serde_json::from_str(value).ok(),
                // Chunk sizes and empty lines.
                _ => {}
            }
            if line.is_empty() && !id.is_empty() {
                return Some(Event { id, name, data: data.unwrap() });
            }
        }
    }

    /// All events up to one with this name.
    fn until(&mut self, name: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return events;
            }
        }
        panic!("no {name} in {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed_and_resumed() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut events = EventClient::new(&client, None);
    client.add(&fixture.scripted("one", &[])).await;
    let response = client
        .post("/api/calls", json!({ "tool": "one_echo", "arguments": { "text": "x" } }))
        .await;
    let received = events.until("call_finished");
    let last = received.last().unwrap();
    assert_eq!(
        json!([last.data["id"], last.data["server"], last.data["tool"], last.data["outcome"]]),
        json!([response["id"], "one", "echo", "done"])
    );
    assert!(
        received.iter().any(|event| event.name == "state" && event.data["state"] == "connected")
    );
    assert!(
        received
            .iter()
            .any(|event| event.name == "call_started" && event.data["id"] == response["id"])
    );
    let started = received.iter().position(|event| event.name == "call_started").unwrap();
    drop(events);

    client.post("/api/calls", json!({ "tool": "one_pid" })).await;
    let mut again = EventClient::new(&client, Some(&received[started].id));
    let rest = again.until("call_finished");
    assert_eq!(rest, received[started + 1..], "no event twice, none missing");
    assert_ne!(again.until("call_finished").last().unwrap().data["id"], response["id"]);

    let mut resumed = EventClient::new(&client, Some("0badcafe-17"));
    let first = resumed.next().unwrap();
    assert_eq!((first.name.as_str(), &first.data["n_events"]), ("lost", &Value::Null));
    assert_eq!(resumed.until("call_finished").last().unwrap().data["id"], response["id"]);

    let closed = tokio::task::spawn_blocking(move || {
        let last = again.until("stopping");
        (last.len(), again.next())
    });
    fixture.shutdown(daemon).await;
    assert_eq!(closed.await.unwrap().1, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_event_reader_blocks_nothing_and_learns_its_loss() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut slow = EventClient::new(&client, None);
    // Enough to fill the socket buffers and then the ring. Several servers, because each is rate limited.
    for number in 0..16 {
        let name = format!("loud{number}");
        client.add(&fixture.scripted(&name, &["--plan", "call=stderr(4MiB,raw)"])).await;
        client.post("/api/calls", json!({ "tool": format!("{name}_pid") })).await;
    }
    let lost = tokio::task::spawn_blocking(move || slow.until("lost")).await.unwrap();
    assert!(lost.last().unwrap().data["n_events"].as_u64().unwrap() > 0);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_are_limited() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let readers: Vec<EventClient> = (0..64).map(|_| EventClient::new(&client, None)).collect();
    let response = client.request("GET", "/api/events", None).await;
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(client.request("GET", "/readyz", None).await.status, 200);
    drop(readers);
    fixture.shutdown(daemon).await;
}
