//! However the bytes are dealt out, the lines are the same.

use proptest::prelude::*;

use super::*;

fn show(piece: Piece<'_>) -> String {
    match piece {
        Piece::Line(line) => String::from_utf8_lossy(line).into_owned(),
        Piece::Owned(line) => String::from_utf8_lossy(&line).into_owned(),
        Piece::Oversize { head, tail, .. } => {
            format!("oversize {}…{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
        }
    }
}

/// Feeds `text` in chunks as the driver would: into the gathering buffer if there is one.
fn split(text: &[u8], chunk_bytes: usize, limit_bytes: usize) -> Vec<String> {
    let mut splitter = Splitter::new(limit_bytes);
    let mut lines = Vec::new();
    for chunk in text.chunks(chunk_bytes) {
        let mut sink = |piece: Piece<'_>| lines.push(show(piece));
        match splitter.gathering() {
            Some(buffer) => {
                let known_bytes = buffer.len();
                buffer.extend_from_slice(chunk);
                splitter.gathered(known_bytes, &mut sink);
            }
            None => splitter.feed(chunk, &mut sink),
        }
    }
    lines
}

#[test]
fn lines_are_cut_at_line_feeds_only() {
    let text = "one\n\ntwo\r\nthr\u{2028}ee\nunfinished".as_bytes();
    for chunk_bytes in [1, 2, 3, 7, 100] {
        assert_eq!(split(text, chunk_bytes, 100), ["one", "", "two\r", "thr\u{2028}ee"]);
    }
}

#[test]
fn a_line_over_the_limit_is_thrown_away_and_the_next_one_is_not() {
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
fn a_long_line_is_handed_over_with_its_buffer() {
    let mut splitter = Splitter::new(1 << 20);
    let long = vec![b'x'; OWN_BUFFER_BYTES];
    let mut owned = 0;
    splitter.feed(&long, &mut |_| owned += 100);
    let known_bytes = {
        let buffer = splitter.gathering().unwrap();
        let known_bytes = buffer.len();
        buffer.extend_from_slice(b"y\nz\n");
        known_bytes
    };
    splitter.gathered(known_bytes, &mut |piece| match piece {
        Piece::Owned(line) => owned += usize::from(line.len() == OWN_BUFFER_BYTES + 1),
        Piece::Line(line) => assert_eq!(line, b"z"),
        Piece::Oversize { .. } => owned += 100,
    });
    assert_eq!(owned, 1);
    assert_eq!(splitter.partial.capacity(), 0, "nothing is held between lines");
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        lines in proptest::collection::vec("[a-z]{0,40}", 0..20),
        chunk_bytes in 1_usize..50,
        limit_bytes in 1_usize..50,
    ) {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        let whole = split(text.as_bytes(), text.len().max(1), limit_bytes);
        prop_assert_eq!(split(text.as_bytes(), chunk_bytes, limit_bytes), whole.clone());
        let kept: Vec<&String> = lines.iter().filter(|line| line.len() <= limit_bytes).collect();
        let shown: Vec<&String> = whole.iter().filter(|line| !line.starts_with("oversize")).collect();
        prop_assert_eq!(shown, kept);
        prop_assert_eq!(whole.len(), lines.len());
    }
}
