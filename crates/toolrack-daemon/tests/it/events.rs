//! `/api/events`: heard as they happen, and taken up again where a reader left off.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::http::PATIENCE;
use crate::stage::{Client, Stage};

/// One event: id, kind and data.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    kind: String,
    data: Value,
}

/// Somebody who listens.
struct Listener {
    lines: BufReader<TcpStream>,
}

impl Listener {
    fn new(client: &Client, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(client.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let last = last.map(|it| format!("last-event-id: {it}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{last}\r\n",
            client.addr, client.token
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut listener = Self { lines: BufReader::new(stream) };
        assert!(listener.line().unwrap().contains(" 200 "));
        while !listener.line().unwrap().is_empty() {}
        listener
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.lines.read_line(&mut line).unwrap();
        (n > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event, or `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        let (mut id, mut kind, mut data) = (String::new(), String::new(), None);
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", it)) => it.clone_into(&mut id),
                Some(("event", it)) => it.clone_into(&mut kind),
                Some(("data", it)) => data = serde_json::from_str(it).ok(),
                // Sizes of chunks and empty lines between events.
                _ => {}
            }
            if line.is_empty() && !id.is_empty() {
                return Some(Event { id, kind, data: data.unwrap() });
            }
        }
    }

    /// Everything up to an event of this kind.
    fn until(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            let is_last = event.kind == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
        panic!("no {kind} in {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_heard_and_can_be_taken_up_again() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let mut listener = Listener::new(&client, None);
    client.add(&stage.scripted("one", &[])).await;
    let answer = client
        .post("/api/calls", json!({ "tool": "one_echo", "arguments": { "text": "x" } }))
        .await;
    let heard = listener.until("call_finished");
    let last = heard.last().unwrap();
    assert_eq!(
        json!([last.data["id"], last.data["server"], last.data["tool"], last.data["outcome"]]),
        json!([answer["id"], "one", "echo", "done"])
    );
    assert!(heard.iter().any(|it| it.kind == "state" && it.data["state"] == "connected"));
    assert!(heard.iter().any(|it| it.kind == "call_started" && it.data["id"] == answer["id"]));
    let started = heard.iter().position(|it| it.kind == "call_started").unwrap();
    drop(listener);

    client.post("/api/calls", json!({ "tool": "one_pid" })).await;
    let mut again = Listener::new(&client, Some(&heard[started].id));
    let rest = again.until("call_finished");
    assert_eq!(rest, heard[started + 1..], "nothing twice, nothing left out");
    assert_ne!(again.until("call_finished").last().unwrap().data["id"], answer["id"]);

    let mut stranger = Listener::new(&client, Some("0badcafe-17"));
    let first = stranger.next().unwrap();
    assert_eq!((first.kind.as_str(), &first.data["n_events"]), ("lost", &Value::Null));
    assert_eq!(stranger.until("call_finished").last().unwrap().data["id"], answer["id"]);

    let ended = tokio::task::spawn_blocking(move || {
        let goodbye = again.until("stopping");
        (goodbye.len(), again.next())
    });
    stage.end(daemon).await;
    assert_eq!(ended.await.unwrap().1, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_up_nobody_and_learns_what_it_lost() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let mut lazy = Listener::new(&client, None);
    // Enough for the buffers of the kernel and then for the ring. No server may say so much alone.
    for number in 0..16 {
        let name = format!("loud{number}");
        client.add(&stage.scripted(&name, &["--plan", "call=stderr(4MiB,raw)"])).await;
        client.post("/api/calls", json!({ "tool": format!("{name}_pid") })).await;
    }
    let lost = tokio::task::spawn_blocking(move || lazy.until("lost")).await.unwrap();
    assert!(lost.last().unwrap().data["n_events"].as_u64().unwrap() > 0);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_bound_to_readers() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let readers: Vec<Listener> = (0..64).map(|_| Listener::new(&client, None)).collect();
    let answer = client.ask("GET", "/api/events", None).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(client.ask("GET", "/readyz", None).await.status, 200);
    drop(readers);
    stage.end(daemon).await;
}
