//! How one HTTP reply will go wrong: the plan's faults, gathered before the first byte is written.

use std::time::Duration;

use crate::plan::{Cut, HttpFault, Kind, Target};

#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Manner {
    pub(super) instead: Instead,
    pub(super) kind: Option<Kind>,
    pub(super) cut: Option<Cut>,
    /// Ends the stream before the answer, with this `retry`.
    pub(super) end: Option<Option<Duration>>,
    pub(super) place: Place,
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) gzip: Gzip,
}

/// What comes in the place of the answer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instead {
    #[default]
    Nothing,
    Status(u16, Option<Duration>),
    Redirect(Target, u16),
    Drop,
    Reset,
    Mute,
    Empty,
    Page,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Here,
    Elsewhere,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gzip {
    #[default]
    No,
    Yes,
    /// So many bytes of padding in the answer.
    Bomb(u64),
}

impl Manner {
    /// Adds one more fault; the last of a kind wins.
    pub(super) fn take(&mut self, fault: &HttpFault) {
        match fault {
            HttpFault::Status { code, retry_after } => {
                self.instead = Instead::Status(*code, *retry_after);
            }
            HttpFault::Redirect { to, code } => self.instead = Instead::Redirect(*to, *code),
            HttpFault::Forget => self.instead = Instead::Status(404, None),
            HttpFault::Drop => self.instead = Instead::Drop,
            HttpFault::Reset => self.instead = Instead::Reset,
            HttpFault::Mute => self.instead = Instead::Mute,
            HttpFault::Empty => self.instead = Instead::Empty,
            HttpFault::Kind(Kind::Html) => self.instead = Instead::Page,
            HttpFault::Kind(kind) => self.kind = Some(*kind),
            HttpFault::Cut(cut) => self.cut = Some(*cut),
            HttpFault::End(retry) => self.end = Some(*retry),
            HttpFault::Elsewhere => self.place = Place::Elsewhere,
            HttpFault::Drip { bytes, every } => {
                self.drip = Some((usize::try_from(*bytes).unwrap_or(usize::MAX), *every));
            }
            HttpFault::Gzip(None) => self.gzip = Gzip::Yes,
            HttpFault::Gzip(Some(bytes)) => self.gzip = Gzip::Bomb(*bytes),
        }
    }

    /// Whether only a stream can go wrong in this manner.
    pub(super) fn needs_stream(&self) -> bool {
        self.end.is_some()
    }
}
