//! Fuzz targets of the line decoder and the guardian protocol. docs/internal/fuzzing.md says how to run them.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use bytes::BufMut as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guardian::protocol::{Report, encode};
use crate::guardian::receive;
use crate::launch_spec::LaunchSpec;
use crate::line_decoder::{DecodedLine, KEPT_BYTES, LineDecoder};
use crate::options::ShutdownTimeouts;

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] =
    &[("line_decoder", line_decoder), ("guardian_protocol", guardian_protocol)];

/// What any socket takes without a reader.
const MAX_SENT_BYTES: usize = 4096;

/// A line, or the ends of a line over the limit.
type Line = Result<Vec<u8>, (Vec<u8>, Vec<u8>)>;

/// The lines are those between line breaks, whatever the reads are.
fn line_decoder(data: &[u8]) {
    let [step, limit, n_copies, bytes @ ..] = data else { return };
    // Short inputs make long lines, which get a buffer of their own.
    let n_copies = usize::from(*n_copies) + 1;
    let (step, limit) = ((usize::from(*step) + 1) * n_copies, usize::from(*limit) * 4 * n_copies);
    let copies = |byte: &u8| vec![*byte; if *byte == b'\n' { 1 } else { n_copies }];
    let bytes = &*bytes.iter().flat_map(copies).collect::<Vec<u8>>();
    let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    // Not ended by a line break.
    expected.pop();
    for step in [step, bytes.len().max(1)] {
        let decoded = decode(bytes, step, limit);
        assert_eq!(decoded.len(), expected.len(), "by {step}");
        for (decoded, expected) in decoded.iter().zip(&expected) {
            match decoded {
                Ok(line) => {
                    assert_eq!(line, expected, "by {step}");
                    assert!(line.len() <= limit);
                }
                Err((head, tail)) => {
                    assert!(expected.len() > limit && expected.ends_with(tail), "by {step}");
                    assert!(expected.starts_with(head), "by {step}");
                    let kept = expected.len().min(KEPT_BYTES);
                    assert_eq!((head.len(), tail.len()), (kept, kept), "by {step}");
                }
            }
        }
    }
}

fn decode(bytes: &[u8], step: usize, limit: usize) -> Vec<Line> {
    let (mut decoder, mut lines) = (LineDecoder::new(limit), Vec::new());
    for read in bytes.chunks(step) {
        let mut sink = |line: DecodedLine<'_>| {
            lines.push(match line {
                DecodedLine::Borrowed(line) => Ok(line.to_vec()),
                DecodedLine::Owned(line) => Ok(line.to_vec()),
                DecodedLine::Oversize { head, tail, .. } => Err((head.to_vec(), tail.to_vec())),
            });
        };
        // As the IO task reads.
        match decoder.partial_buffer() {
            Some(buffer) => {
                let known_bytes = buffer.len();
                buffer.put_slice(read);
                decoder.decode_partial(known_bytes, &mut sink);
            }
            None => decoder.decode(read, &mut sink),
        }
    }
    lines
}

/// A message that can be read is written as one line, and that line is read as the same message.
fn guardian_protocol(line: &[u8]) {
    check_message::<LaunchSpec>(line);
    check_message::<ShutdownTimeouts>(line);
    check_message::<Report>(line);
    check_received(line);
}

/// The first line that the guardian receives is the message, and a line without an end is none.
fn check_received(bytes: &[u8]) {
    // More than the buffer of a socket is not read before it is written.
    let bytes = bytes.get(..MAX_SENT_BYTES).unwrap_or(bytes);
    let Ok((mut owner, guardian)) = UnixStream::pair() else { return };
    assert!(owner.write_all(bytes).is_ok());
    drop(owner);
    let line = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let expected = line.ends_with(b"\n").then(|| serde_json::from_slice::<ShutdownTimeouts>(line));
    assert_eq!(receive(&guardian).ok(), expected.and_then(Result::ok));
}

fn check_message<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(line) else { return };
    let written = encode(&message).unwrap_or_default();
    assert_eq!(written.iter().position(|byte| *byte == b'\n'), Some(written.len() - 1));
    assert_eq!(serde_json::from_slice::<T>(&written).ok(), Some(message));
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
