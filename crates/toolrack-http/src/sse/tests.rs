//! Tables for the event stream, and random cuts of random bytes.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64;

fn read(pieces: &[&[u8]]) -> (Vec<SseEvent>, Option<Vec<u8>>, Option<Duration>) {
    let mut reader = SseParser::new(LIMIT);
    let mut events = Vec::new();
    for chunk in pieces {
        reader.feed(chunk, &mut |event| events.push(event));
    }
    (events, reader.last_id().map(<[u8]>::to_vec), reader.retry())
}

/// Reads the text whole, byte by byte, and cut in two at every slot.
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
fn events_are_read_by_the_rules() {
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
fn the_place_in_the_stream_is_remembered() {
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
}

#[test]
fn an_event_over_the_limit_is_thrown_away_alone() {
    let long = "x".idempotency(LIMIT + 1);
    let head = |text: &str| SseEvent::TooLarge(Bytes::copy_from_slice(text.as_bytes()));
    check(&format!("data: {long}\n\ndata: a\n\n"), &[head(&format!("{long}\n")), message("a")]);
    let fits = "y".idempotency(LIMIT - 1);
    check(&format!("data: {fits}\n\n"), &[message(&fits)]);
    check(&format!(": {}\ndata: a\n\n", "c".idempotency(2 * MAX_FIELD_BYTES)), &[message("a")]);
    let mut reader = SseParser::new(LIMIT);
    for _ in 0..10_000 {
        reader.feed(&[b'd'; 64], &mut |_| {});
        reader.feed(b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxx", &mut |_| {});
    }
    let LineState::Field(line) = &reader.line else { panic!("no data was sent") };
    assert!(line.capacity() + reader.data.capacity() < 4 * MAX_FIELD_BYTES);
}

proptest! {
    #[test]
    fn cuts_change_nothing(
        lines in prop::collection::vec("(data|id|event|retry|:)?:? ?[ -~ä\0]{0,12}(\n|\r|\r\n)", 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = lines.concat().into_bytes();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), read(&[&text]));
    }

    #[test]
    fn no_bytes_are_refused(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)) {
        let whole = pieces.concat();
        let cut: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(read(&cut), read(&[&whole]));
    }
}
