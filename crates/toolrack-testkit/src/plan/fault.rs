//! Faults that a plan can name, their arguments and their triggers.
//!
//! **Invariant:** `FAULTS` is both the help text and the list of names; tests parse its examples.

use std::str::FromStr;
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use super::Trigger;
use super::args::Args;
use crate::quantity::{self, Times};

/// One fault. Word arguments have their first variant as the default.
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
    Escape { count: u64, kind: EscapeeKind },
    StopParent,
    Children(u64),
    Spin,
    Burn,
    Prompt,
    Ignore(Vec<Ignored>),
    Tree(u64),
    Status(u16),
    Send { message: Message, times: Times },
    Member { name: String, value: MemberValue, amount: u64 },
    Reply { reply: Reply, bytes: u64 },
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WrongId {
    #[default]
    Zero,
    Text,
    Float,
    Unknown,
    Null,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    #[default]
    Both,
    Neither,
    Null,
    Number,
    /// A `resultType` that no revision defines.
    Alien,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Framing {
    #[default]
    Crlf,
    Bom,
    Bytewise,
    Batch,
}

/// Position of the response id in a huge line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HugePlacement {
    #[default]
    /// A junk line before the response.
    Line,
    /// Junk without a newline, and no response.
    Open,
    Front,
    Back,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cursor {
    #[default]
    Same,
    Empty,
    Endless,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Garbage {
    #[default]
    Text,
    Ansi,
    Blank,
    Crlf,
    Bom,
    Utf8,
    Json,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lines {
    #[default]
    #[serde(rename = "lines")]
    Many,
    #[serde(rename = "raw")]
    None,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    #[default]
    Stdout,
    Stdin,
    Stderr,
}

/// What hides an escaped process from its owner: the lack of the tag, or of a main thread.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EscapeeKind {
    #[default]
    Tagged,
    Untagged,
    /// Tagged, and its main thread has ended.
    Leaderless,
}

/// Message that a server sends unasked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Message {
    #[default]
    Progress,
    Resources,
    Prompts,
    Updated,
    Cancelled,
    Task,
    Completed,
    Unknown,
    Roots,
    Sampling,
    Elicitation,
    /// An elicitation by URL that no client may open.
    Url,
}

impl Message {
    pub(crate) fn is_request(self) -> bool {
        matches!(self, Self::Roots | Self::Sampling | Self::Elicitation | Self::Url)
    }
}

/// Value of a result member.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemberValue {
    #[default]
    Text,
    Number,
    Negative,
    Arrays,
    Objects,
    Surrogates,
    Nul,
    Utf8,
    Blocks,
    Tiny,
    Same,
    Names,
    Bidi,
    Large,
    Bad,
    Nested,
}

/// HTTP response that replaces the regular one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    #[default]
    Headers,
    Header,
    Cookie,
    Session,
    Challenge,
    Redirect,
    Gzip,
    Event,
    Retry,
    Drop,
    Slow,
    Junk,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ignored {
    #[default]
    Term,
    Eof,
}

/// Help: an example of each fault, and its effect.
pub(crate) const FAULTS: &str = "\
  ok                   no fault (for mixes)
  late(200ms)          delays the response, even if the client cancels meanwhile
  hold(3)              holds responses until there are 3, then sends them in reverse order
  dup                  responds twice
  hang                 never responds; the server goes on
  id(zero)             responds with the id 0; also id(text) \"7\", id(float) 7.0, id(unknown), id(null)
  shape(both)          result and error; also neither, null (result), number (result), alien (resultType)
  error(-32603)        responds with this error code
  frame(crlf)          ends the line with CRLF; also bom, bytewise (one write per byte), batch (in an array)
  huge(64MiB)          a junk line of that size first; huge(64MiB,open): no newline and no response; \
    huge(64MiB,front|back): the response itself, with the id in front or at the end
  version(1999-01-01)  the version in the response to `initialize` or `server/discover`
  cursor(same)         a list never ends with one cursor; also empty (\"\"), endless (always new)
  garbage(text,1)      lines that are not messages; also ansi, blank, crlf, bom, utf8 (invalid), json
  nonsense(1000)       valid JSON of an invalid shape, this often or `forever`
  stderr(10MiB)        this much stderr output first; stderr(10MiB,raw): without newlines
  notify(1000)         this many log notifications first, or `forever`
  changed(1000,1ms)    this many list_changed notifications, one every 1ms; without a time all at once
  ping(1000)           this many pings from the server first, or `forever`
  exit(1)              exits without a response
  kill(KILL)           kills itself with this signal; also TERM, HUP, INT, ABRT, SEGV, STOP
  half(1)              writes half of the response, then exits
  close(stdout)        closes stdout, stdin or stderr and keeps running
  leak(0)              exits and leaves a process that holds stdout open
  stopread             stops reading after this message
  escape(2)            starts sleeping processes that leave the session and ignore TERM; escape(2,untagged): \
    without the tag in their environment; escape(2,leaderless): their main thread ends, another one sleeps
  stopparent           stops the process that started the server, its guardian, with SIGSTOP
  children(2)          starts sleeping processes
  spin                 burns a CPU and does nothing else
  burn                 burns a CPU while serving
  prompt               prompts on stderr and waits for a line that is not JSON
  ignore(term,eof)     ignores SIGTERM, the end of input, or both
  tree(1)              runs the server as launcher → sh → server, nested this often
  status(503)          over HTTP: this status instead of a response; the request is not run
  send(progress,1000)  this many messages that nothing asked for first, or `forever`: progress, resources and \
    prompts (list_changed), updated, cancelled, task, completed, unknown; requests: roots, sampling, elicitation, url \
    (an elicitation with a `javascript:` address)
  member(content,text,1MiB)  a member of the result: text of this size; number, negative; arrays, objects (nested this \
    deep); surrogates, nul, utf8 (this many invalid characters); blocks (of text); or this many list entries: tiny, same \
    (one name), names (4,000 bytes each), bidi, large (300 KiB each), bad (malformed), nested (deep schemas)
  reply(headers,1MiB)  over HTTP: a hostile response of this size instead; also header (a single one), cookie, \
    session (id), challenge, redirect (to itself), gzip (bomb), event (without an end), retry (at once), drop, slow \
    (byte by byte), junk
";

impl Fault {
    /// Parses `name` or `name(argument, …)`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, args) = quantity::name_and_arguments(text)?;
        let mut args = Args::new(name, args);
        let fault = Self::from_name(name, &mut args)?;
        args.done()?;
        Ok(fault)
    }

    fn from_name(name: &str, args: &mut Args<'_>) -> Result<Self, String> {
        let once = Times::Count(1);
        Ok(match name {
            "ok" => Self::Ok,
            "late" => Self::Late(args.or(Duration::from_millis(200), quantity::time)?),
            "hold" => Self::Hold(args.count(2)?),
            "dup" => Self::Dup,
            "hang" => Self::Hang,
            "id" => Self::Id(args.word()?),
            "shape" => Self::Shape(args.word()?),
            "error" => Self::Error(args.or(-32603, integer)?),
            "frame" => Self::Frame(args.word()?),
            "huge" => Self::Huge { bytes: args.bytes()?, place: args.word()? },
            "version" => Self::Version(args.required("an argument", |text| Ok(text.to_owned()))?),
            "cursor" => Self::Cursor(args.word()?),
            "garbage" => {
                Self::Garbage { kind: args.word()?, times: args.or(once, quantity::times)? }
            }
            "nonsense" => Self::Nonsense(args.or(once, quantity::times)?),
            "stderr" => Self::Stderr { bytes: args.bytes()?, lines: args.word()? },
            "notify" => Self::Notify(args.or(once, quantity::times)?),
            "changed" => Self::Changed {
                times: args.or(once, quantity::times)?,
                every: args.or(Duration::ZERO, quantity::time)?,
            },
            "ping" => Self::Ping(args.or(once, quantity::times)?),
            "exit" => Self::Exit(args.or(1, exit_code)?),
            "kill" => Self::Kill(args.or(Signal::KILL, signal)?),
            "half" => Self::Half(args.or(1, exit_code)?),
            "close" => Self::Close(args.word()?),
            "leak" => Self::Leak(args.or(0, exit_code)?),
            "stopread" => Self::StopRead,
            "escape" => Self::Escape { count: args.count(1)?, kind: args.word()? },
            "stopparent" => Self::StopParent,
            "children" => Self::Children(args.count(1)?),
            "spin" => Self::Spin,
            "burn" => Self::Burn,
            "prompt" => Self::Prompt,
            "ignore" => Self::Ignore(args.words()?),
            "tree" => Self::Tree(args.count(1)?),
            "status" => Self::Status(args.or(503, status)?),
            "send" => Self::Send { message: args.word()?, times: args.or(once, quantity::times)? },
            "member" => Self::Member {
                name: args.required("an argument", |text| Ok(text.to_owned()))?,
                value: args.word()?,
                amount: args.or(1, quantity::bytes)?,
            },
            "reply" => Self::Reply { reply: args.word()?, bytes: args.or(1, quantity::bytes)? },
            other => {
                let known: Vec<&str> = examples().map(fault_name).collect();
                let known = known.join(", ");
                return Err(format!("unknown fault or trigger `{other}`; faults: {known}"));
            }
        })
    }

    /// Whether the request is rejected before it runs.
    pub(crate) fn rejects_request(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Reply { .. })
    }

    /// Trigger of the fault when the plan names none.
    pub(super) fn default_trigger(&self) -> Trigger {
        match self {
            Self::Version(_) => Trigger::Initialize,
            Self::Cursor(_) => Trigger::List,
            Self::Reply { .. } => Trigger::Http,
            Self::Ignore(_)
            | Self::Tree(_)
            | Self::Escape { .. }
            | Self::StopParent
            | Self::Children(_)
            | Self::Prompt => Trigger::Start,
            _ => Trigger::Call,
        }
    }

    fn allows(&self, trigger: Trigger) -> bool {
        match self {
            Self::Version(_) => matches!(trigger, Trigger::Initialize | Trigger::Discover),
            Self::Cursor(_) => trigger.is_list(),
            Self::Reply { .. } => trigger == Trigger::Http,
            Self::Ignore(_) | Self::Tree(_) => trigger == Trigger::Start,
            // Everything else gets its own HTTP response.
            Self::Status(_) => !matches!(trigger, Trigger::Start | Trigger::Message | Trigger::Eof),
            _ => true,
        }
    }

    /// Why the fault with this name cannot happen at a trigger.
    pub(super) fn check_trigger(&self, name: &str, trigger: Trigger) -> Result<(), String> {
        let at = trigger.name();
        if !self.allows(trigger) {
            let allowed = Trigger::ALL.iter().filter(|(trigger, ..)| self.allows(*trigger));
            let names: Vec<String> = allowed.map(|(_, name, _)| format!("`{name}`")).collect();
            return Err(format!("`{name}` is allowed at {}, not at `{at}`", names.join(" or ")));
        }
        if self.changes_response() && !trigger.has_request() {
            return Err(format!("`{name}` changes a response, and `{at}` has none"));
        }
        Ok(())
    }

    /// Whether the fault changes a response, and so needs a request.
    pub(crate) fn changes_response(&self) -> bool {
        match self {
            Self::Late(_)
            | Self::Hold(_)
            | Self::Dup
            | Self::Hang
            | Self::Id(_)
            | Self::Shape(_)
            | Self::Error(_)
            | Self::Half(_)
            | Self::Member { .. }
            | Self::Frame(_) => true,
            Self::Huge { place, .. } => matches!(place, HugePlacement::Front | HugePlacement::Back),
            _ => false,
        }
    }
}

/// Examples of all faults.
pub(super) fn examples() -> impl Iterator<Item = &'static str> {
    FAULTS.lines().filter_map(|line| line.split_whitespace().next())
}

/// Name of a fault, without its arguments.
pub(super) fn fault_name(example: &str) -> &str {
    example.split('(').next().unwrap_or(example)
}

fn integer<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_not_digits| format!("`{text}` is not an integer"))
}

fn exit_code(text: &str) -> Result<i32, String> {
    let code = text.parse::<u8>();
    code.map(i32::from)
        .map_err(|_not_a_byte| format!("`{text}` is not an exit code; codes are 0 to 255"))
}

fn signal(text: &str) -> Result<Signal, String> {
    let known = [
        ("KILL", Signal::KILL),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("ABRT", Signal::ABORT),
        ("SEGV", Signal::SEGV),
        ("STOP", Signal::STOP),
    ];
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, signal)| *signal);
    found.ok_or_else(|| {
        let names = known.map(|(name, _)| name).join(", ");
        format!("`kill` has no option `{text}`; expected one of {names}")
    })
}

fn status(text: &str) -> Result<u16, String> {
    let code = integer(text)?;
    if (200..=599).contains(&code) {
        Ok(code)
    } else {
        Err(format!("`{text}` is not a final HTTP status"))
    }
}
