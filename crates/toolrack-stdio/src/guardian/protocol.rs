//! What a guardian and its owner say to each other, as bytes.
//!
//! The owner sends one launch (with the server's three pipes beside it) and later perhaps a stop. The
//! guardian sends reports of a fixed size. Arguments and environment travel here and not on a command
//! line, where everybody could read them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use toolrack_transport::Exit;

use crate::launch_spec::LaunchSpec;
use crate::options::Ladder;

/// The length of the launch stands in front of it, in this many bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A launch cannot be larger: the system would not start it.
pub(crate) const MAX_LAUNCH_BYTES: usize = 16 << 20;

/// Every stop has this many bytes.
pub(crate) const STOP_BYTES: usize = 8;

/// Every report has this many bytes.
pub(crate) const REPORT_BYTES: usize = 8;

/// What a guardian reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The server runs.
    Started,
    /// It could not be started, for this reason of the system.
    Refused { errno: i32 },
    /// The server itself has ended.
    Exited(Exit),
    /// Nothing is left of it. The last report.
    NothingLeft,
}

impl Report {
    pub(crate) fn encode(self) -> [u8; REPORT_BYTES] {
        let (tag, number): (u8, i32) = match self {
            Report::Started => (1, 0),
            Report::Refused { errno } => (2, errno),
            Report::Exited(Exit::Code(code)) => (3, code),
            Report::Exited(Exit::Signal(signal)) => (4, signal),
            Report::Exited(Exit::Unknown) => (5, 0),
            Report::NothingLeft => (6, 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, 0, 0, 0, a, b, c, d]
    }

    pub(crate) fn decode([tag, _, _, _, a, b, c, d]: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            1 => Report::Started,
            2 => Report::Refused { errno: number },
            3 => Report::Exited(Exit::Code(number)),
            4 => Report::Exited(Exit::Signal(number)),
            5 => Report::Exited(Exit::Unknown),
            6 => Report::NothingLeft,
            _ => return None,
        })
    }
}

/// A stop, with the patience it is to be carried out with.
pub(crate) fn encode_stop(ladder: Ladder) -> [u8; STOP_BYTES] {
    let close = u64::from(milliseconds(ladder.close));
    (close << 32 | u64::from(milliseconds(ladder.terminate))).to_le_bytes()
}

pub(crate) fn decode_stop(stop: [u8; STOP_BYTES]) -> Ladder {
    let both = u64::from_le_bytes(stop);
    Ladder {
        close: Duration::from_millis(both >> 32),
        terminate: Duration::from_millis(both & u64::from(u32::MAX)),
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A launch with its length in front. `None` if it is too large for any system.
pub(crate) fn encode_launch(spec: &LaunchSpec) -> Option<Vec<u8>> {
    let mut out = vec![0; LENGTH_BYTES];
    put(&mut out, spec.program.as_os_str().as_bytes());
    put_all(&mut out, spec.cwd.iter().map(|dir| dir.as_os_str().as_bytes()));
    put_all(&mut out, spec.args.iter().map(|arg| arg.as_bytes()));
    put_all(
        &mut out,
        spec.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
    );
    put_all(&mut out, spec.farewell.iter().map(|word| word.as_bytes()));
    let length = out.len() - LENGTH_BYTES;
    if length > MAX_LAUNCH_BYTES {
        return None;
    }
    let length = u32::try_from(length).ok()?.to_le_bytes();
    out.get_mut(..LENGTH_BYTES)?.copy_from_slice(&length);
    Some(out)
}

/// Reads a launch back, without its length.
pub(crate) fn decode_launch(bytes: &[u8]) -> Option<LaunchSpec> {
    let mut rest = bytes;
    let program = PathBuf::from(take(&mut rest)?);
    let cwd = take_all(&mut rest)?.into_iter().next().map(PathBuf::from);
    let args = take_all(&mut rest)?;
    let mut texts = take_all(&mut rest)?.into_iter();
    let mut env = Vec::new();
    while let Some(name) = texts.next() {
        env.push((name, texts.next()?));
    }
    let farewell = take_all(&mut rest)?;
    rest.is_empty().then_some(LaunchSpec { program, args, env, cwd, farewell })
}

fn put(out: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text);
}

fn put_all<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a [u8]> + Clone) {
    let count = u32::try_from(texts.clone().count()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    texts.for_each(|text| put(out, text));
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

fn take(rest: &mut &[u8]) -> Option<OsString> {
    let length = take_number(rest)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(OsString::from_vec(text.to_vec()))
}

fn take_all(rest: &mut &[u8]) -> Option<Vec<OsString>> {
    let count = take_number(rest)?;
    (0..count).map(|_| take(rest)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        for report in [
            Report::Started,
            Report::Refused { errno: 8 },
            Report::Exited(Exit::Code(-1)),
            Report::Exited(Exit::Signal(9)),
            Report::Exited(Exit::Unknown),
            Report::NothingLeft,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode([0; REPORT_BYTES]), None);
    }

    #[test]
    fn a_stop_survives_the_wire() {
        let ladder = Ladder { close: Duration::from_secs(2), terminate: Duration::from_millis(1) };
        assert_eq!(decode_stop(encode_stop(ladder)), ladder);
    }

    fn text() -> impl Strategy<Value = OsString> {
        proptest::collection::vec(any::<u8>(), 0..30).prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn a_launch_survives_the_wire(
            program in text(),
            cwd in proptest::option::of(text()),
            args in proptest::collection::vec(text(), 0..5),
            env in proptest::collection::vec((text(), text()), 0..5),
            farewell in proptest::collection::vec(text(), 0..3),
        ) {
            let cwd = cwd.map(PathBuf::from);
            let spec = LaunchSpec { program: program.into(), args, env, cwd, farewell };
            let bytes = encode_launch(&spec).unwrap();
            let (length, body) = bytes.split_first_chunk::<LENGTH_BYTES>().unwrap();
            prop_assert_eq!(u32::from_le_bytes(*length) as usize, body.len());
            prop_assert_eq!(decode_launch(body), Some(spec));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(decode_launch(&bytes).is_none_or(|spec| spec.args.len() < 100));
        }
    }
}
