//! Answers that are too large, packed, or cut into the smallest pieces.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use toolrack_http::HttpOptions;
use toolrack_transport::{Abandon, Delivery, Line, Outgoing, Patience};

use crate::server::{Said, Seen, Server, Step};
use crate::stage::{MODERN, SOON, Stage};

const LIMIT: usize = 64 << 10;

type Make = Box<dyn Fn(&Seen) -> Said + Send + Sync>;

async fn small(server: &Server) -> Stage {
    let options = HttpOptions { max_message_bytes: LIMIT, ..HttpOptions::default() };
    let stage = Stage::open(&server.url, options).await;
    stage.line.speak(MODERN);
    stage
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn answer(seen: &Seen, n_bytes: usize) -> String {
    let result = json!({"text": "x".repeat(n_bytes)});
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string()
}

#[tokio::test]
async fn what_is_too_large_fails_alone() {
    let json = || Said::status(200).header("content-type", "application/json");
    let rows: Vec<Make> = vec![
        Box::new(move |seen| json().say(answer(seen, LIMIT))),
        // Without a length, so that it has to be noticed on the way.
        Box::new(move |seen| json().say(answer(seen, LIMIT)).say("")),
        Box::new(move |_| {
            let bomb = packed(&vec![b' '; 64 << 20]);
            json().header("content-encoding", "gzip").say(bomb)
        }),
        Box::new(|seen| Said::events().say(format!("data: {}\n\n", answer(seen, LIMIT)))),
        Box::new(|_| {
            let bomb = packed(&[b"data: ".to_vec(), vec![b'x'; 64 << 20]].concat());
            Said::events().header("content-encoding", "gzip").say(bomb)
        }),
    ];
    for make in rows {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => make(seen),
            _ => Said::result(seen, json!({})),
        })
        .await;
        let stage = small(&server).await;
        let expected = "the answer is larger than the limit of 65536 bytes".to_owned();
        let failure = Stage::failure(stage.ask("tools/call").await);
        assert_eq!(failure, (expected, Delivery::Answered));
        assert_eq!(stage.line.diagnosis().oversize, 1);
        stage.ask("tools/list").await.unwrap();
    }
}

#[tokio::test]
async fn a_small_answer_has_to_keep_to_the_limit_too() {
    let server = Server::start(|seen| Said::result(seen, json!({"text": "x".repeat(100)}))).await;
    for (max_message_bytes, is_taken) in [(100, false), (1_000, true)] {
        let options = HttpOptions { max_message_bytes, ..HttpOptions::default() };
        let stage = Stage::open(&server.url, options).await;
        stage.line.speak(MODERN);
        assert_eq!(stage.ask("tools/call").await.is_ok(), is_taken, "{max_message_bytes}");
    }
}

/// Whoever takes a large text out of its answer would have to copy it if anybody else held the buffer.
#[tokio::test]
async fn an_answer_shares_its_memory_with_nobody() {
    let server = Server::start(|seen| {
        let n_bytes = seen.body["params"]["n"].as_u64().unwrap_or_default();
        Said::result(seen, json!({"text": "x".repeat(usize::try_from(n_bytes).unwrap())}))
    })
    .await;
    let stage = Stage::modern(&server).await;
    for n_bytes in [10, 3_000, 5_000, 20_000, 58_000, 60_000, 64_000, 100_000, 10, 62_000] {
        let request = Outgoing {
            method: "tools/call",
            params: &Some(json!({"n": n_bytes})),
            patience: Patience::exactly(SOON),
            abandon: Abandon::Tell,
        };
        let answer = stage.line.request(request).await.unwrap();
        assert!(answer.into_bytes().is_unique(), "{n_bytes}");
    }
}

#[tokio::test]
async fn a_large_note_does_not_harm_the_answer() {
    let script = |seen: &Seen| {
        let note = json!({"jsonrpc": "2.0", "method": "note", "params": {"x": "y".repeat(LIMIT)}});
        // The name of the method comes first, as servers write it.
        let note =
            format!(r#"data: {{"jsonrpc":"2.0","method":"note","params":{}}}"#, note["params"]);
        Said::events().say(format!("{note}\n\n")).event_result(seen, json!({"ok": 1}))
    };
    let server = Server::start(script).await;
    let stage = small(&server).await;
    assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"ok": 1}));
    assert_eq!(stage.line.diagnosis().oversize, 1);
}

#[tokio::test]
async fn packed_answers_are_unpacked() {
    let script = |seen: &Seen| {
        let is_stream = seen.method() == "tools/call";
        let text = answer(seen, 10_000);
        let text = if is_stream { format!("data: {text}\n\n") } else { text };
        let kind = if is_stream { "text/event-stream" } else { "application/json" };
        let said = Said::status(200).header("content-type", kind);
        let bytes = Bytes::from(packed(text.as_bytes()));
        let said = said.header("content-encoding", "gzip");
        (0..bytes.len()).fold(said, |said, at| said.say(bytes.slice(at..=at)))
    };
    let server = Server::start(script).await;
    let stage = small(&server).await;
    for method in ["tools/call", "tools/list"] {
        let result = stage.ask(method).await.unwrap();
        assert_eq!(result["text"].as_str().unwrap().len(), 10_000, "{method}");
    }
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("gzip"));
}

#[tokio::test]
async fn a_stream_may_come_byte_by_byte() {
    let script = |seen: &Seen| {
        let text = format!("\u{feff}event: message\r\ndata: {}\r\n\r\n", answer(seen, 10));
        let bytes = Bytes::from(text);
        let mut said = Said::events();
        for at in 0..bytes.len() {
            said = said.say(bytes.slice(at..=at)).step(Step::Pause(std::time::Duration::ZERO));
        }
        said
    };
    let server = Server::start(script).await;
    let stage = small(&server).await;
    assert_eq!(stage.ask("tools/call").await.unwrap()["text"], "x".repeat(10));
}

#[tokio::test]
async fn a_large_answer_comes_whole() {
    let script = |seen: &Seen| {
        Said::status(200).header("content-type", "application/json").say(answer(seen, 8 << 20))
    };
    let server = Server::start(script).await;
    let stage = Stage::modern(&server).await;
    let result = stage.ask("tools/call").await.unwrap();
    assert_eq!(result["text"].as_str().unwrap().len(), 8 << 20);
}
