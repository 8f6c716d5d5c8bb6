//! The faults that only a server over HTTP can have.
//!
//! **Invariant:** `HTTP_FAULTS` is the help text and the list of names at once; its examples are tested to parse.

use std::time::Duration;

use super::Moment;
use super::args::{Args, Words};

/// One thing that goes wrong with an HTTP exchange.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HttpFault {
    Status { code: u16, retry_after: Option<Duration> },
    Redirect { to: Target, code: u16 },
    Forget,
    Drop,
    Reset,
    Mute,
    Empty,
    Kind(Kind),
    Cut(Cut),
    End(Option<Duration>),
    Elsewhere,
    Drip { bytes: u64, every: Duration },
    Gzip(Option<u64>),
}

/// Where a redirect leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Another path of the same origin, which is served like the first.
    Same,
    /// The same server under another port, which is another origin.
    Other,
    /// The very URL that was asked for.
    Loop,
}

/// What a reply says that it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A web page instead of the answer.
    Html,
    /// The answer, called plain text.
    Text,
    /// The answer without a word on what it is.
    None,
}

/// Where a reply breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    After(u64),
    BeforeAnswer,
}

/// An example of each fault, which is also its entry in the help, and what it does.
pub(crate) const HTTP_FAULTS: &[(&str, &str)] = &[
    (
        "status(503,2s)",
        "this status instead of an answer, and `Retry-After` if a time is given; nothing is run. \
                     With `error(-32000)` beside it, a JSON-RPC error is the body",
    ),
    (
        "redirect(same,307)",
        "sends the client to another path; also other (origin), loop; nothing is run",
    ),
    ("forget", "forgets every session and answers 404, as after a restart; nothing is run"),
    ("drop", "closes the connection instead of answering"),
    ("reset", "resets the connection (RST) instead of answering"),
    ("mute", "never writes a byte, not even headers"),
    ("empty", "200 with an empty body"),
    ("type(html)", "a web page; also text (the answer as text/plain), none (no content type)"),
    (
        "cut(100)",
        "closes the connection after so many bytes of the body; cut(answer): just before the answer",
    ),
    (
        "end(100ms)",
        "ends the stream in good order before the answer; the time, if any, is its `retry`",
    ),
    ("elsewhere", "202 for the POST, and the answer on the stream that GET opened"),
    ("drip(1,100ms)", "so many bytes of the reply at a time"),
    ("gzip", "compresses the reply; gzip(10GiB): an answer that is that long when unpacked"),
];

/// Where such a fault may stand: at whatever is answered by an HTTP reply of its own.
pub(super) const HTTP_MOMENTS: &[Moment] = &[
    Moment::Call,
    Moment::List,
    Moment::Initialize,
    Moment::Discover,
    Moment::Initialized,
    Moment::Listen,
    Moment::Unknown,
    Moment::Http,
    Moment::Stream,
    Moment::Delete,
];

impl HttpFault {
    /// Nothing when the name is none of these.
    pub(super) fn of(name: &str, args: &mut Args<'_>) -> Result<Option<Self>, String> {
        Ok(Some(match name {
            "status" => Self::Status { code: status(args)?, retry_after: args.maybe_time()? },
            "redirect" => Self::Redirect { to: args.word(&TARGETS)?, code: redirection(args)? },
            "forget" => Self::Forget,
            "drop" => Self::Drop,
            "reset" => Self::Reset,
            "mute" => Self::Mute,
            "empty" => Self::Empty,
            "type" => Self::Kind(args.word(&KINDS)?),
            "cut" => Self::Cut(args.bytes_or("answer")?.map_or(Cut::BeforeAnswer, Cut::After)),
            "end" => Self::End(args.maybe_time()?),
            "elsewhere" => Self::Elsewhere,
            "drip" => {
                Self::Drip { bytes: args.count(1)?, every: args.time(Duration::from_millis(100))? }
            }
            "gzip" => Self::Gzip(args.maybe_bytes()?),
            _ => return Ok(None),
        }))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Redirect { .. } => "redirect",
            Self::Forget => "forget",
            Self::Drop => "drop",
            Self::Reset => "reset",
            Self::Mute => "mute",
            Self::Empty => "empty",
            Self::Kind(_) => "type",
            Self::Cut(_) => "cut",
            Self::End(_) => "end",
            Self::Elsewhere => "elsewhere",
            Self::Drip { .. } => "drip",
            Self::Gzip(_) => "gzip",
        }
    }

    /// Whether the request is turned away before anything is done for it.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Redirect { .. } | Self::Forget)
    }
}

fn status(args: &mut Args<'_>) -> Result<u16, String> {
    let code = args.integer(503)?;
    u16::try_from(code)
        .ok()
        .filter(|try_from| (200..=599).contains(try_from))
        .ok_or_else(|| format!("`{code}` is no final HTTP status"))
}

fn redirection(args: &mut Args<'_>) -> Result<u16, String> {
    let code = args.integer(307)?;
    u16::try_from(code)
        .ok()
        .filter(|try_from| (300..=399).contains(try_from))
        .ok_or_else(|| format!("`{code}` is no redirect"))
}

const TARGETS: Words<Target, 3> =
    [("same", Target::Same), ("other", Target::Other), ("loop", Target::Loop)];
const KINDS: Words<Kind, 3> = [("html", Kind::Html), ("text", Kind::Text), ("none", Kind::None)];
