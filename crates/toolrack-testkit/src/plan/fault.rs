//! Faults that a plan can name, their arguments and their triggers.
//!
//! **Invariant:** `FAULTS` and `HTTP_FAULTS` are both the help text and the list of names; tests parse their
//! examples.

use std::time::Duration;

use rustix::process::Signal;

use super::Trigger;
use super::args::{Args, Choices};
use crate::quantity::Times;

/// One fault.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Ok,
    Late(Duration),
    Hold(u64),
    Dup,
    Hang,
    Id(WrongId),
    Shape(Shape),
    Error(i64),
    Frame(Framing),
    Huge { bytes: u64, place: HugePlacement },
    Version(String),
    Cursor(Cursor),
    Garbage { kind: Garbage, times: Times },
    Nonsense(Times),
    Stderr { bytes: u64, lines: Lines },
    Notify(Times),
    Changed { times: Times, every: Duration },
    Ping(Times),
    Exit(i32),
    Kill(Signal),
    Half(i32),
    Close(Stream),
    Leak(i32),
    StopRead,
    Escape(u64),
    Children(u64),
    Spin,
    Burn,
    Prompt,
    Ignore(Vec<Ignored>),
    Tree(u64),
    Http(HttpFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongId {
    Zero,
    Text,
    Float,
    Unknown,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Both,
    Neither,
    Null,
    Number,
    /// A `resultType` that no revision defines.
    Alien,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Crlf,
    Bom,
    Bytewise,
    Batch,
}

/// Position of the response id in a huge line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HugePlacement {
    /// A junk line before the response.
    Line,
    /// Junk without a newline, and no response.
    Open,
    Front,
    Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    Same,
    Empty,
    Endless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Garbage {
    Text,
    Ansi,
    Blank,
    Crlf,
    Bom,
    Utf8,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    Many,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    Term,
    Eof,
}

/// Example of each fault, shown in the help, and its effect.
pub(crate) const FAULTS: &[(&str, &str)] = &[
    ("ok", "no fault (for mixes)"),
    ("late(200ms)", "delays the response, even if the client cancels meanwhile"),
    ("hold(3)", "holds responses until there are 3, then sends them in reverse order"),
    ("dup", "responds twice"),
    ("hang", "never responds; the server goes on"),
    (
        "id(zero)",
        "responds with the id 0; also id(text) \"7\", id(float) 7.0, id(unknown), id(null)",
    ),
    (
        "shape(both)",
        "result and error; also neither, null (result), number (result), alien (resultType)",
    ),
    ("error(-32603)", "responds with this error code"),
    (
        "frame(crlf)",
        "ends the line with CRLF; also bom, bytewise (one write per byte), batch (in an array)",
    ),
    (
        "huge(64MiB)",
        "a junk line of that size first; huge(64MiB,open): no newline and no response; \
                     huge(64MiB,front|back): the response itself, with the id in front or at the end",
    ),
    ("version(1999-01-01)", "the version in the response to `initialize` or `server/discover`"),
    (
        "cursor(same)",
        "`tools/list` never ends with one cursor; also empty (\"\"), endless (always new)",
    ),
    (
        "garbage(text,1)",
        "lines that are not messages; also ansi, blank, crlf, bom, utf8 (invalid), json",
    ),
    ("nonsense(1000)", "valid JSON of an invalid shape, this often or `forever`"),
    ("stderr(10MiB)", "this much stderr output first; stderr(10MiB,raw): without newlines"),
    ("notify(1000)", "this many log notifications first, or `forever`"),
    (
        "changed(1000,1ms)",
        "this many list_changed notifications, one every 1ms; without a time all at once",
    ),
    ("ping(1000)", "this many pings from the server first, or `forever`"),
    ("exit(1)", "exits without a response"),
    ("kill(KILL)", "kills itself with this signal; also TERM, HUP, INT, ABRT, SEGV"),
    ("half(1)", "writes half of the response, then exits"),
    ("close(stdout)", "closes stdout, stdin or stderr and keeps running"),
    ("leak(0)", "exits and leaves a process that holds stdout open"),
    ("stopread", "stops reading after this message"),
    ("escape(2)", "starts sleeping processes that leave the session and ignore TERM"),
    ("children(2)", "starts sleeping processes"),
    ("spin", "burns a CPU and does nothing else"),
    ("burn", "burns a CPU while serving"),
    ("prompt", "prompts on stderr and waits for a line that is not JSON"),
    ("ignore(term,eof)", "ignores SIGTERM, the end of input, or both"),
    ("tree(1)", "runs the server as launcher → sh → server, nested this often"),
];

impl Fault {
    /// Parses `name` or `name(argument, …)`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, args) = match text.split_once('(') {
            None => (text, ""),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(args) => (name, args),
                None => return Err(format!("`{text}` has no closing parenthesis")),
            },
        };
        let mut args = Args::new(name, args);
        let fault = Self::from_name(name, &mut args)?;
        args.done()?;
        Ok(fault)
    }

    fn from_name(name: &str, args: &mut Args<'_>) -> Result<Self, String> {
        Ok(match name {
            "ok" => Self::Ok,
            "late" => Self::Late(args.time(Duration::from_millis(200))?),
            "hold" => Self::Hold(args.count(2)?),
            "dup" => Self::Dup,
            "hang" => Self::Hang,
            "id" => Self::Id(args.word(&WRONG_IDS)?),
            "shape" => Self::Shape(args.word(&SHAPES)?),
            "error" => Self::Error(args.integer(-32603)?),
            "frame" => Self::Frame(args.word(&FRAMINGS)?),
            "huge" => Self::Huge { bytes: args.bytes()?, place: args.word(&PLACES)? },
            "version" => Self::Version(args.text()?),
            "cursor" => Self::Cursor(args.word(&CURSORS)?),
            "garbage" => Self::Garbage { kind: args.word(&GARBAGE)?, times: args.times(1)? },
            "nonsense" => Self::Nonsense(args.times(1)?),
            "stderr" => Self::Stderr { bytes: args.bytes()?, lines: args.word(&LINES)? },
            "notify" => Self::Notify(args.times(1)?),
            "changed" => Self::Changed { times: args.times(1)?, every: args.time(Duration::ZERO)? },
            "ping" => Self::Ping(args.times(1)?),
            "exit" => Self::Exit(args.code(1)?),
            "kill" => Self::Kill(args.word(&SIGNALS)?),
            "half" => Self::Half(args.code(1)?),
            "close" => Self::Close(args.word(&STREAMS)?),
            "leak" => Self::Leak(args.code(0)?),
            "stopread" => Self::StopRead,
            "escape" => Self::Escape(args.count(1)?),
            "children" => Self::Children(args.count(1)?),
            "spin" => Self::Spin,
            "burn" => Self::Burn,
            "prompt" => Self::Prompt,
            "ignore" => Self::Ignore(args.words(&IGNORED)?),
            "tree" => Self::Tree(args.count(1)?),
            other => match HttpFault::from_name(other, args)? {
                Some(fault) => Self::Http(fault),
                None => {
                    let all = FAULTS.iter().chain(HTTP_FAULTS);
                    let known: Vec<&str> = all.map(|(example, _)| fault_name(example)).collect();
                    let known = known.join(", ");
                    return Err(format!("unknown fault or trigger `{name}`; faults: {known}"));
                }
            },
        })
    }

    /// Whether the request is rejected before it runs.
    pub(crate) fn rejects_request(&self) -> bool {
        matches!(self, Self::Http(fault) if fault.rejects_request())
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Late(_) => "late",
            Self::Hold(_) => "hold",
            Self::Dup => "dup",
            Self::Hang => "hang",
            Self::Id(_) => "id",
            Self::Shape(_) => "shape",
            Self::Error(_) => "error",
            Self::Frame(_) => "frame",
            Self::Huge { .. } => "huge",
            Self::Version(_) => "version",
            Self::Cursor(_) => "cursor",
            Self::Garbage { .. } => "garbage",
            Self::Nonsense(_) => "nonsense",
            Self::Stderr { .. } => "stderr",
            Self::Notify(_) => "notify",
            Self::Changed { .. } => "changed",
            Self::Ping(_) => "ping",
            Self::Exit(_) => "exit",
            Self::Kill(_) => "kill",
            Self::Half(_) => "half",
            Self::Close(_) => "close",
            Self::Leak(_) => "leak",
            Self::StopRead => "stopread",
            Self::Escape(_) => "escape",
            Self::Children(_) => "children",
            Self::Spin => "spin",
            Self::Burn => "burn",
            Self::Prompt => "prompt",
            Self::Ignore(_) => "ignore",
            Self::Tree(_) => "tree",
            Self::Http(fault) => fault.name(),
        }
    }

    /// Trigger of the fault when the plan names none.
    pub(super) fn default_trigger(&self) -> Trigger {
        match self {
            Self::Version(_) => Trigger::Initialize,
            Self::Cursor(_) => Trigger::List,
            Self::Ignore(_)
            | Self::Tree(_)
            | Self::Escape(_)
            | Self::Children(_)
            | Self::Prompt => Trigger::Start,
            _ => Trigger::Call,
        }
    }

    /// The only triggers of the fault, where it is limited.
    pub(super) fn allowed_triggers(&self) -> Option<&'static [Trigger]> {
        match self {
            Self::Version(_) => Some(&[Trigger::Initialize, Trigger::Discover]),
            Self::Cursor(_) => Some(&[Trigger::List]),
            Self::Ignore(_) | Self::Tree(_) => Some(&[Trigger::Start]),
            Self::Http(_) => Some(HTTP_TRIGGERS),
            _ => None,
        }
    }

    /// Whether the fault changes a response, and so needs a request.
    pub(super) fn needs_request(&self) -> bool {
        match self {
            Self::Late(_)
            | Self::Hold(_)
            | Self::Dup
            | Self::Hang
            | Self::Id(_)
            | Self::Shape(_)
            | Self::Error(_)
            | Self::Half(_)
            | Self::Frame(_) => true,
            Self::Huge { place, .. } => matches!(place, HugePlacement::Front | HugePlacement::Back),
            _ => false,
        }
    }
}

/// Fault name in an example of `FAULTS`.
pub(super) fn fault_name(example: &str) -> &str {
    example.split('(').next().unwrap_or(example)
}

/// The first entry of each table is the default.
const WRONG_IDS: Choices<WrongId, 5> = [
    ("zero", WrongId::Zero),
    ("text", WrongId::Text),
    ("float", WrongId::Float),
    ("unknown", WrongId::Unknown),
    ("null", WrongId::Null),
];
const SHAPES: Choices<Shape, 5> = [
    ("both", Shape::Both),
    ("neither", Shape::Neither),
    ("null", Shape::Null),
    ("number", Shape::Number),
    ("alien", Shape::Alien),
];
const FRAMINGS: Choices<Framing, 4> = [
    ("crlf", Framing::Crlf),
    ("bom", Framing::Bom),
    ("bytewise", Framing::Bytewise),
    ("batch", Framing::Batch),
];
const PLACES: Choices<HugePlacement, 4> = [
    ("line", HugePlacement::Line),
    ("open", HugePlacement::Open),
    ("front", HugePlacement::Front),
    ("back", HugePlacement::Back),
];
const CURSORS: Choices<Cursor, 3> =
    [("same", Cursor::Same), ("empty", Cursor::Empty), ("endless", Cursor::Endless)];
const GARBAGE: Choices<Garbage, 7> = [
    ("text", Garbage::Text),
    ("ansi", Garbage::Ansi),
    ("blank", Garbage::Blank),
    ("crlf", Garbage::Crlf),
    ("bom", Garbage::Bom),
    ("utf8", Garbage::Utf8),
    ("json", Garbage::Json),
];
const LINES: Choices<Lines, 2> = [("lines", Lines::Many), ("raw", Lines::None)];
const STREAMS: Choices<Stream, 3> =
    [("stdout", Stream::Stdout), ("stdin", Stream::Stdin), ("stderr", Stream::Stderr)];
const IGNORED: Choices<Ignored, 2> = [("term", Ignored::Term), ("eof", Ignored::Eof)];
const SIGNALS: Choices<Signal, 6> = [
    ("KILL", Signal::KILL),
    ("TERM", Signal::TERM),
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("ABRT", Signal::ABORT),
    ("SEGV", Signal::SEGV),
];

/// One fault of an HTTP exchange.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HttpFault {
    Status { code: u16, retry_after: Option<Duration> },
    Redirect { to: RedirectTarget, code: u16 },
    Forget,
    Drop,
    Reset,
    Mute,
    Empty,
    ContentKind(ContentKind),
    Cut(Cut),
    End(Option<Duration>),
    Elsewhere,
    Drip { bytes: u64, every: Duration },
    Gzip(Option<u64>),
}

/// Target of a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// Another path of the same origin, served like the first.
    Same,
    /// The same server on another port, which is another origin.
    Other,
    /// The requested URL itself.
    Loop,
}

/// Wrong content type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentKind {
    /// An HTML page instead of the response.
    Html,
    /// The response as `text/plain`.
    Text,
    /// The response without a content type.
    None,
}

/// Where a response is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    After(u64),
    BeforeResponse,
}

/// Example of each fault, shown in the help, and its effect.
pub(crate) const HTTP_FAULTS: &[(&str, &str)] = &[
    (
        "status(503,2s)",
        "this status instead of a response, with `Retry-After` if a time is given; the request is not run. \
                     With `error(-32000)` beside it, a JSON-RPC error is the body",
    ),
    (
        "redirect(same,307)",
        "redirects to another path; also other (origin), loop; the request is not run",
    ),
    ("forget", "drops every session and responds 404, as after a restart; the request is not run"),
    ("drop", "closes the connection without a response"),
    ("reset", "resets the connection (RST) without a response"),
    ("mute", "sends nothing, not even headers"),
    ("empty", "200 with an empty body"),
    ("type(html)", "an HTML page; also text (the response as text/plain), none (no content type)"),
    (
        "cut(100)",
        "closes the connection after this many bytes of the body; cut(answer): just before the response",
    ),
    (
        "end(100ms)",
        "ends the stream normally before the response; the time, if any, is its `retry`",
    ),
    ("elsewhere", "202 for the POST, and the response on the GET stream"),
    ("drip(1,100ms)", "sends this many bytes at a time"),
    ("gzip", "compresses the response; gzip(10GiB): a response of this size when decompressed"),
];

/// Triggers of HTTP faults: everything that gets its own HTTP response.
pub(super) const HTTP_TRIGGERS: &[Trigger] = &[
    Trigger::Call,
    Trigger::List,
    Trigger::Initialize,
    Trigger::Discover,
    Trigger::Initialized,
    Trigger::Listen,
    Trigger::Unknown,
    Trigger::Http,
    Trigger::Stream,
    Trigger::Delete,
];

impl HttpFault {
    /// `None` for an unknown name.
    pub(super) fn from_name(name: &str, args: &mut Args<'_>) -> Result<Option<Self>, String> {
        Ok(Some(match name {
            "status" => Self::Status { code: status(args)?, retry_after: args.optional_time()? },
            "redirect" => Self::Redirect { to: args.word(&TARGETS)?, code: redirection(args)? },
            "forget" => Self::Forget,
            "drop" => Self::Drop,
            "reset" => Self::Reset,
            "mute" => Self::Mute,
            "empty" => Self::Empty,
            "type" => Self::ContentKind(args.word(&KINDS)?),
            "cut" => Self::Cut(args.bytes_or("answer")?.map_or(Cut::BeforeResponse, Cut::After)),
            "end" => Self::End(args.optional_time()?),
            "elsewhere" => Self::Elsewhere,
            "drip" => {
                Self::Drip { bytes: args.count(1)?, every: args.time(Duration::from_millis(100))? }
            }
            "gzip" => Self::Gzip(args.optional_bytes()?),
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
            Self::ContentKind(_) => "type",
            Self::Cut(_) => "cut",
            Self::End(_) => "end",
            Self::Elsewhere => "elsewhere",
            Self::Drip { .. } => "drip",
            Self::Gzip(_) => "gzip",
        }
    }

    /// Whether the request is rejected before it runs.
    pub(crate) fn rejects_request(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Redirect { .. } | Self::Forget)
    }
}

fn status(args: &mut Args<'_>) -> Result<u16, String> {
    let code = args.integer(503)?;
    u16::try_from(code)
        .ok()
        .filter(|code| (200..=599).contains(code))
        .ok_or_else(|| format!("`{code}` is not a final HTTP status"))
}

fn redirection(args: &mut Args<'_>) -> Result<u16, String> {
    let code = args.integer(307)?;
    u16::try_from(code)
        .ok()
        .filter(|code| (300..=399).contains(code))
        .ok_or_else(|| format!("`{code}` is not a redirect status"))
}

const TARGETS: Choices<RedirectTarget, 3> = [
    ("same", RedirectTarget::Same),
    ("other", RedirectTarget::Other),
    ("loop", RedirectTarget::Loop),
];
const KINDS: Choices<ContentKind, 3> =
    [("html", ContentKind::Html), ("text", ContentKind::Text), ("none", ContentKind::None)];
