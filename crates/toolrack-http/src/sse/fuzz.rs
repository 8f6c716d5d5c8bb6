//! Fuzz target of the SSE parser, with a second parser that follows the WHATWG text step by step.

use std::time::Duration;

use super::{MAX_HEAD_BYTES, MAX_RETRY, SseEvent, SseParser};

/// Larger than any input.
const NO_LIMIT: usize = 1 << 20;

/// What a stream leads to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    events: Vec<SseEvent>,
    last_id: Option<Vec<u8>>,
    retry: Option<Duration>,
}

/// Chunks do not matter, both parsers agree, and an event over the limit is cut.
pub(crate) fn sse(data: &[u8]) {
    let [step, limit, stream @ ..] = data else { return };
    let step = usize::from(*step) + 1;
    let whole = parse(stream, stream.len().max(1), NO_LIMIT);
    assert_eq!(whole, parse(stream, step, NO_LIMIT), "by {step}");
    assert_eq!(whole, parse_by_the_text(stream));
    let limit = usize::from(*limit);
    let limited = parse(stream, stream.len().max(1), limit);
    assert_eq!(limited, parse(stream, step, limit), "by {step}, at most {limit}");
    for event in &limited.events {
        match event {
            SseEvent::Message(data) | SseEvent::Other(_, data) => assert!(data.len() <= limit),
            SseEvent::TooLarge(start) => assert!(start.len() <= MAX_HEAD_BYTES),
        }
    }
}

fn parse(stream: &[u8], step: usize, limit_bytes: usize) -> Outcome {
    let (mut parser, mut events) = (SseParser::new(limit_bytes), Vec::new());
    for chunk in stream.chunks(step) {
        parser.feed(chunk, &mut |event| events.push(event));
    }
    Outcome { events, last_id: parser.last_id().map(<[u8]>::to_vec), retry: parser.retry() }
}

/// <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>, on bytes.
fn parse_by_the_text(stream: &[u8]) -> Outcome {
    let stream = stream.strip_prefix("\u{feff}".as_bytes()).unwrap_or(stream);
    let mut outcome = Outcome { events: Vec::new(), last_id: None, retry: None };
    let (mut data, mut event_type, mut id_buffer) = (Vec::new(), Vec::new(), None);
    for line in lines(stream) {
        if line.is_empty() {
            outcome.last_id = id_buffer.clone().filter(|id: &Vec<u8>| !id.is_empty());
            let (mut data, event_type) =
                (std::mem::take(&mut data), std::mem::take(&mut event_type));
            data.pop();
            // Departs from the text: an event whose data is empty is no message.
            if data.is_empty() {
                continue;
            }
            outcome.events.push(match event_type.as_slice() {
                b"" | b"message" => SseEvent::Message(data.into()),
                other => SseEvent::Other(String::from_utf8_lossy(other).into(), data.into()),
            });
            continue;
        }
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let field = halves.next().unwrap_or_default();
        let value = halves.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => event_type = value.to_vec(),
            b"data" => {
                data.extend_from_slice(value);
                data.push(b'\n');
            }
            b"id" if !value.contains(&0) => id_buffer = Some(value.to_vec()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let capped = number.map(|number| Duration::from_millis(number).min(MAX_RETRY));
                outcome.retry = capped.or(outcome.retry);
            }
            _ => {}
        }
    }
    outcome
}

/// Complete lines: they end with CRLF, LF or CR.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut start, mut at) = (Vec::new(), 0, 0);
    while let Some(byte) = stream.get(at) {
        at += 1;
        if matches!(byte, b'\n' | b'\r') {
            lines.push(stream.get(start..at - 1).unwrap_or_default());
            if *byte == b'\r' && stream.get(at) == Some(&b'\n') {
                at += 1;
            }
            start = at;
        }
    }
    lines
}
