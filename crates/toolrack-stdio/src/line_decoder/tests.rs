//! The decoded lines do not depend on how the stream is split into chunks.

use proptest::prelude::*;

use super::*;

fn to_text(line: DecodedLine<'_>) -> String {
    match line {
        DecodedLine::Borrowed(line) => String::from_utf8_lossy(line).into_owned(),
        DecodedLine::Owned(line) => String::from_utf8_lossy(&line).into_owned(),
        DecodedLine::Oversize { head, tail, .. } => {
            format!("oversize {}…{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
        }
    }
}

/// Decodes `text` in chunks like the IO task: into the partial buffer if there is one.
fn split(text: &[u8], chunk_bytes: usize, limit_bytes: usize) -> Vec<String> {
    let mut decoder = LineDecoder::new(limit_bytes);
    let mut lines = Vec::new();
    for chunk in text.chunks(chunk_bytes) {
        let mut sink = |line: DecodedLine<'_>| lines.push(to_text(line));
        match decoder.partial_buffer() {
            Some(buffer) => {
                let known_bytes = buffer.len();
                buffer.extend_from_slice(chunk);
                decoder.decode_partial(known_bytes, &mut sink);
            }
            None => decoder.decode(chunk, &mut sink),
        }
    }
    lines
}

#[test]
fn only_line_feeds_end_lines() {
    let text = "one\n\ntwo\r\nthr\u{2028}ee\nunfinished".as_bytes();
    for chunk_bytes in [1, 2, 3, 7, 100] {
        assert_eq!(split(text, chunk_bytes, 100), ["one", "", "two\r", "thr\u{2028}ee"]);
    }
}

#[test]
fn oversize_line_is_discarded_and_the_next_is_kept() {
    for chunk_bytes in [1, 3, 100] {
        let lines = split(b"short\n0123456789abc\nnext\n", chunk_bytes, 10);
        assert_eq!(lines, ["short", "oversize 0123456789abc…0123456789abc", "next"]);
    }
    let long = [b"{\"id\":7,".as_slice(), &[b'x'; 5000], b",\"end\":1}\nnext\n"].concat();
    for chunk_bytes in [1, 64, 700, 4096, 10_000] {
        let lines = split(&long, chunk_bytes, 1000);
        assert_eq!(lines.len(), 2, "{chunk_bytes}");
        assert!(lines[0].starts_with("oversize {\"id\":7,xxx"), "{chunk_bytes}: {}", lines[0]);
        assert!(lines[0].ends_with("xxx,\"end\":1}"), "{chunk_bytes}");
        assert!(lines[0].len() < 3 * KEPT_BYTES);
        assert_eq!(lines[1], "next");
    }
}

#[test]
fn long_line_keeps_its_own_buffer() {
    let mut decoder = LineDecoder::new(1 << 20);
    let long = vec![b'x'; OWN_BUFFER_BYTES];
    let mut owned = 0;
    decoder.decode(&long, &mut |_| owned += 100);
    let known_bytes = {
        let buffer = decoder.partial_buffer().unwrap();
        let known_bytes = buffer.len();
        buffer.extend_from_slice(b"y\nz\n");
        known_bytes
    };
    decoder.decode_partial(known_bytes, &mut |line| match line {
        DecodedLine::Owned(line) => owned += usize::from(line.len() == OWN_BUFFER_BYTES + 1),
        DecodedLine::Borrowed(line) => assert_eq!(line, b"z"),
        DecodedLine::Oversize { .. } => owned += 100,
    });
    assert_eq!(owned, 1);
    assert_eq!(decoder.partial.capacity(), 0, "no memory is held between lines");
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_matter(
        lines in proptest::collection::vec("[a-z]{0,40}", 0..20),
        chunk_bytes in 1_usize..50,
        limit_bytes in 1_usize..50,
    ) {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        let whole = split(text.as_bytes(), text.len().max(1), limit_bytes);
        prop_assert_eq!(split(text.as_bytes(), chunk_bytes, limit_bytes), whole.clone());
        let kept: Vec<&String> = lines.iter().filter(|line| line.len() <= limit_bytes).collect();
        let decoded: Vec<&String> = whole.iter().filter(|line| !line.starts_with("oversize")).collect();
        prop_assert_eq!(decoded, kept);
        prop_assert_eq!(whole.len(), lines.len());
    }
}
