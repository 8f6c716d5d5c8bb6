//! SSE parser: tables of the WHATWG rules, and random chunk boundaries.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64;

fn read(chunks: &[&[u8]]) -> (Vec<SseEvent>, Option<Vec<u8>>, Option<Duration>) {
    let mut parser = SseParser::new(LIMIT);
    let mut events = Vec::new();
    for chunk in chunks {
        parser.feed(chunk, &mut |event| events.push(event));
    }
    (events, parser.last_id().map(<[u8]>::to_vec), parser.retry())
}

/// Parses the text whole, byte by byte, and split at every position.
#[track_caller]
fn check(text: &str, expected: &[SseEvent]) {
    let bytes = text.as_bytes();
    let whole = read(&[bytes]);
    assert_eq!(whole.0, expected, "{text:?}");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), whole, "{text:?} byte by byte");
    for at in 0..=bytes.len() {
        assert_eq!(read(&[&bytes[..at], &bytes[at..]]), whole, "{text:?} cut at {at}");
    }
}

fn message(text: &str) -> SseEvent {
    SseEvent::Message(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn sse_follows_whatwg_rules() {
    check("data: a\n\n", &[message("a")]);
    check("data:a\r\n\r\n", &[message("a")]);
    check("data: a\r\r", &[message("a")]);
    check("data:  a\n\n", &[message(" a")]);
    check("data: a\ndata: b\n\n", &[message("a\nb")]);
    check("data\ndata\n\n", &[message("\n")]);
    check("data:\ndata: b\n\n", &[message("\nb")]);
    check("event: message\ndata: a\n\ndata: b\n\n", &[message("a"), message("b")]);
    check("\u{feff}data: a\n\n", &[message("a")]);
    check("\u{feff}\u{feff}data: a\n\n", &[]);
    check("datax: a\n\n", &[]);
    check("dat: a\ndata : b\n\n", &[]);
    check("Data: a\n\n", &[]);
    check(": comment\ndata: a\n: more\n\n", &[message("a")]);
    check("data: unfinished\n", &[]);
    check("\n\n\n", &[]);
    check("unknown: x\nnofield\ndata: ä漢\n\n", &[message("ä漢")]);
    let endpoint = SseEvent::Other("endpoint".to_owned(), Bytes::from_static(b"/m"));
    check("event: endpoint\ndata: /m\n\ndata: a\n\n", &[endpoint, message("a")]);
    check("event: endpoint\n\ndata: a\n\n", &[message("a")]);
}

#[track_caller]
fn cursor(text: &str, id: Option<&str>, retry: Option<u64>) {
    let (_, last, wait) = read(&[text.as_bytes()]);
    let expected = (id.map(|id| id.as_bytes().to_vec()), retry.map(Duration::from_millis));
    assert_eq!((last, wait), expected, "{text:?}");
}

#[test]
fn sse_tracks_last_event_id_and_retry() {
    cursor("id: 7\ndata: a\n\n", Some("7"), None);
    cursor("id: 7\nretry: 500\ndata:\n\n", Some("7"), Some(500));
    cursor("id: 7\n\n", Some("7"), None);
    cursor("id: 7\ndata: a\n", None, None);
    cursor("id: 7\n\ndata: a\n\n", Some("7"), None);
    cursor("id: 7\n\nid\n\n", None, None);
    cursor("id: a\0b\n\n", None, None);
    cursor("retry: 5x\n\n", None, None);
    cursor("retry: 5\nretry: -1\n\n", None, Some(5));
    cursor("retry: 99999999999999999999999\n\n", None, None);
    // A delay of years would keep the stream closed for good.
    cursor("retry: 1000000000000\n\n", None, Some(300_000));
}

#[test]
fn oversize_sse_event_is_dropped_alone() {
    let long = "x".repeat(LIMIT + 1);
    let head = |text: &str| SseEvent::TooLarge(Bytes::copy_from_slice(text.as_bytes()));
    check(&format!("data: {long}\n\ndata: a\n\n"), &[head(&format!("{long}\n")), message("a")]);
    let fits = "y".repeat(LIMIT - 1);
    check(&format!("data: {fits}\n\n"), &[message(&fits)]);
    check(&format!(": {}\ndata: a\n\n", "c".repeat(2 * MAX_FIELD_BYTES)), &[message("a")]);
    let mut parser = SseParser::new(LIMIT);
    for _ in 0..10_000 {
        parser.feed(&[b'd'; 64], &mut |_| {});
        parser.feed(b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxx", &mut |_| {});
    }
    let LineState::Field(line) = &parser.line else { panic!("no data was sent") };
    assert!(line.capacity() + parser.data.capacity() < 4 * MAX_FIELD_BYTES);
}

#[test]
fn bytes_that_are_not_data_are_counted() {
    let check = |text: &str, expected: usize| {
        for step in [text.len(), 7] {
            let mut parser = SseParser::new(LIMIT);
            let chunks = text.as_bytes().chunks(step);
            let n_bytes: usize = chunks.map(|chunk| parser.feed(chunk, &mut |_| {})).sum();
            // A field name that is cut is counted too.
            assert!((expected..expected + 6).contains(&n_bytes), "{n_bytes} {text:?} by {step}");
        }
    };
    check("data: 0123456789\n", 0);
    check("data: 0123456789\n\n", 1);
    // Within an event, before it and after it.
    check(":\n:\ndata: x\n: c\n: c\n\n: c\n", 4 + 8 + 1 + 4);
    check("id: 7\nevent: message\nunknown\ndata: x\n", 6 + 15 + 8);
    check("\n\r\r\n\n", 4);
    // An event over the limit, once it is over it.
    let mut parser = SseParser::new(LIMIT);
    assert_eq!(parser.feed(b"data: yyyy\ndata: ", &mut |_| {}), 0);
    assert_eq!(parser.feed(&[b'x'; 2 * LIMIT], &mut |_| {}), 2 * LIMIT);
    assert_eq!(parser.feed(b"x\ndata: z\n", &mut |_| {}), 4);
}

proptest! {
    #[test]
    fn sse_parsing_ignores_chunk_boundaries(
        lines in prop::collection::vec("(data|id|event|retry|:)?:? ?[ -~ä\0]{0,12}(\n|\r|\r\n)", 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = lines.concat().into_bytes();
        let mut cuts_at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts_at.extend([0, text.len()]);
        cuts_at.sort_unstable();
        let chunks: Vec<&[u8]> = cuts_at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&chunks), read(&[&text]));
    }

    #[test]
    fn sse_parser_accepts_arbitrary_bytes(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)) {
        let whole = chunks.concat();
        let cut: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(read(&cut), read(&[&whole]));
    }
}
