//! Command line of the scripted server, and its help text with the plan grammar.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::header_tools::HeaderTools;
use super::http::{HttpOptions, Shape};
use crate::plan::{FAULTS, Fault, FaultMix, Plan, Trigger};
use crate::quantity;
use crate::revision::{Revision, SupportedRevisions};

/// Options of a server; the default ones are those of a server without faults.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) revisions: SupportedRevisions,
    pub(super) plan: Plan,
    pub(super) mix: Option<FaultMix>,
    pub(super) n_tools: u64,
    pub(super) schema_bytes: u64,
    /// Generated resources, templates and prompts, and the size of each description.
    pub(super) n_entries: u64,
    pub(super) entry_bytes: u64,
    /// Entries per page; `None` puts all on one.
    pub(super) page_size: Option<usize>,
    /// Whether it neither declares nor sends `list_changed`.
    pub(super) silent_changes: bool,
    pub(super) journal: Option<PathBuf>,
    pub(super) marker: Option<String>,
    pub(super) lifetime: Duration,
    pub(super) role: Role,
    pub(super) header_tools: HeaderTools,
    /// `None` for stdio.
    pub(super) http: Option<HttpOptions>,
}

/// Role of this process in a process tree.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    Server,
    /// Part of a tree, with this many launchers below.
    Inside(u64),
    Child,
    Escapee,
    /// An escapee whose main thread has ended.
    LeaderlessEscapee,
    /// Starts this many escapees and exits, so that they have no parent.
    Between(u64),
    /// The same with leaderless escapees.
    BetweenLeaderless(u64),
}

impl Options {
    /// Number of launchers between this process and the server.
    pub(super) fn levels_left(&self) -> u64 {
        if let Role::Inside(left) = self.role {
            return left;
        }
        let levels = |fault: &Fault| match fault {
            Fault::Tree(levels) => Some(*levels),
            _ => None,
        };
        self.plan.faults_at(Trigger::Start, 1).find_map(levels).unwrap_or_default()
    }
}

/// Parses the command line. `None` asks for the help text.
pub(super) fn parse(args: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options { lifetime: Duration::from_mins(2), ..Options::default() };
    let (mut mix, mut seed, mut revisions) = (None, 0, None);
    let mut http = HttpOptions::default();
    let mut left = args.iter();
    while let Some(name) = left.next() {
        if name == "--help" {
            return Ok(None);
        }
        let mut value = || left.next().ok_or_else(|| format!("`{name}` needs a value"));
        let within = |why: String| format!("{name}: {why}");
        match name.as_str() {
            "--revision" => revisions = Some(SupportedRevisions::parse(value()?).map_err(within)?),
            "--plan" => options.plan = Plan::parse(value()?).map_err(within)?,
            "--mix" => mix = Some(value()?),
            "--seed" => seed = parse_seed(value()?).map_err(within)?,
            "--tools" => options.n_tools = quantity::count(value()?).map_err(within)?,
            "--schema-bytes" => options.schema_bytes = quantity::bytes(value()?).map_err(within)?,
            "--entries" => options.n_entries = quantity::count(value()?).map_err(within)?,
            "--entry-bytes" => options.entry_bytes = quantity::bytes(value()?).map_err(within)?,
            "--page-size" => options.page_size = Some(page_size(value()?).map_err(within)?),
            "--silent-changes" => options.silent_changes = true,
            "--journal" => options.journal = Some(PathBuf::from(value()?)),
            "--marker" => options.marker = Some(value()?.clone()),
            "--lifetime" => options.lifetime = quantity::time(value()?).map_err(within)?,
            "--role" => options.role = role(value()?).map_err(within)?,
            "--http" => http.listen = Some(address(value()?).map_err(within)?),
            "--header-tools" => options.header_tools = quantity::word(value()?).map_err(within)?,
            "--http-log" => http.log = Some(PathBuf::from(value()?)),
            "--shape" => http.shape = quantity::word(value()?).map_err(within)?,
            "--reply" => http.reply_mode = quantity::word(value()?).map_err(within)?,
            _ => return Err(format!("unknown option `{name}`")),
        }
    }
    options.http = http.listen.is_some().then_some(http);
    options.revisions = speaks_over(options.http.as_ref().map(|http| http.shape), revisions)?;
    if let (None, Some(fault)) = (&options.http, options.plan.needs_http()) {
        return Err(format!("--plan: `{fault}` needs `--http`"));
    }
    let mix = mix.map(|text| FaultMix::parse(text, seed).map_err(|why| format!("--mix: {why}")));
    options.mix = mix.transpose()?;
    Ok(Some(options))
}

/// Supported revisions: as given, or the default of the transport shape.
fn speaks_over(
    shape: Option<Shape>,
    given: Option<SupportedRevisions>,
) -> Result<SupportedRevisions, String> {
    let revisions = given.unwrap_or(match shape {
        None | Some(Shape::Session) => SupportedRevisions::default(),
        Some(Shape::Stateless) => SupportedRevisions::Only(Revision::R2026_07_28),
        Some(Shape::Sse) => SupportedRevisions::Only(Revision::R2024_11_05),
        Some(Shape::Dual) => SupportedRevisions::Dual,
    });
    match shape {
        Some(Shape::Session | Shape::Sse) if revisions.has_modern() => {
            Err("--shape: 2026-07-28 has no sessions; use stateless or dual".to_owned())
        }
        Some(Shape::Dual) if revisions != SupportedRevisions::Dual => {
            Err("--shape: dual supports every revision".to_owned())
        }
        _ => Ok(revisions),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_no_address| format!("`{text}` is not an address, as in `127.0.0.1:0`"))
}

/// A restarted server has the same arguments; `pid` gives it other faults.
fn parse_seed(text: &str) -> Result<u64, String> {
    if text == "pid" { Ok(u64::from(std::process::id())) } else { quantity::count(text) }
}

fn page_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(format!("`{text}` is not a page size")),
    }
}

/// The program passes roles to itself, so they are not in the help.
fn role(text: &str) -> Result<Role, String> {
    match text.split_once(':') {
        None if text == "child" => Ok(Role::Child),
        None if text == "escapee" => Ok(Role::Escapee),
        None if text == "leaderless" => Ok(Role::LeaderlessEscapee),
        Some(("inside", left)) => Ok(Role::Inside(quantity::count(left)?)),
        Some(("between", n_escapees)) => Ok(Role::Between(quantity::count(n_escapees)?)),
        Some(("between-leaderless", n_escapees)) => {
            Ok(Role::BetweenLeaderless(quantity::count(n_escapees)?))
        }
        _ => Err(format!("unknown role `{text}`")),
    }
}

const HEAD: &str = "\
scripted-server: an MCP server, on stdin and stdout or over HTTP, that follows a fault plan

Options:
  --revision R        2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 (default), 2026-07-28,
                      modern (the same), or dual (both eras)
  --plan PLAN         the fault plan
  --mix MIX           a random fault for each call by weight, as in \"ok=80,exit=5,late(50ms)=3\"
  --seed N            the seed of the mix (default 0); `pid` differs for each process
  --tools N           this many generated tools besides its own
  --schema-bytes SIZE the size of the input schema of each generated tool
  --entries N         generates this many resources, templates and prompts, too
  --entry-bytes SIZE  the size of the description of each of them
  --page-size N       entries per page of a list (default: all)
  --silent-changes    does not declare or send tools/list_changed
  --journal FILE      append a line for each executed or cancelled call
  --marker TEXT       ignored; marks this process and its children
  --lifetime TIME     when processes that would never exit do exit (default 120s)
  --header-tools WHICH
                      tools with `x-mcp-header`: valid, invalid or all

Over HTTP (the server prints `listening URL`, and exits at the end of stdin):
  --http ADDRESS      where to listen, as in 127.0.0.1:0
  --shape SHAPE       session (2025, default), stateless (2026-07-28, or an older revision without
                      sessions), sse (2024-11-05, two endpoints), dual (stateless and session)
  --reply KIND        json, sse, or auto (default): JSON unless there are messages before the response
  --http-log FILE     append a line for each request, and for the end of its response

A plan is rules separated by `;`. A rule is a trigger, `=`, and faults joined by `+`:
  call=late(200ms)            at every call
  call:3=exit(1)              at the third call only
  call:3-7=dup                from the third to the seventh; `3-` has no end
  call:every=10=hang          at every tenth
  start=stderr(10MiB)+garbage(text,3)
A fault without a trigger uses its default one (mostly `call`), also as `name=arguments`:
  stderr=10MiB; late=200ms; ignore=term,eof; cursor=same

Triggers:
";

const TAIL: &str = "
Examples:
  scripted-server --revision 2025-11-25 --plan \"call:3=exit(1); stderr=10MiB; late=200ms\"
  scripted-server --revision 2024-11-05 --plan \"unknown=exit(1)\"      exits at server/discover
  scripted-server --revision dual --plan \"tree; escape=2; ignore=term,eof\"
  scripted-server --http 127.0.0.1:0 --shape dual --plan \"http:1-3=status(503)\"
  scripted-server --mix \"ok=80,exit=5,hang=5,garbage=5,late=3,dup=2\" --seed 7 --journal run.log
";

pub(super) fn help_text() -> String {
    let row = |(_, name, meaning): &(Trigger, &str, &str)| format!("  {name:<20} {meaning}\n");
    let triggers: String = Trigger::ALL.iter().map(row).collect();
    format!("{HEAD}{triggers}\nFaults:\n{FAULTS}{TAIL}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Option<Options>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn options_are_read_in_any_order() {
        let line = "--seed 7 --mix ok=1 --revision dual --tools 3 --page-size 2 --lifetime 5s";
        let Ok(Some(options)) = parse_words(line) else { panic!("{line}") };
        let read = (options.revisions, options.n_tools, options.page_size, options.lifetime);
        assert_eq!(read, (SupportedRevisions::Dual, 3, Some(2), Duration::from_secs(5)));
        assert_eq!(options.mix, Some(FaultMix::parse("ok=1", 7).expect("a mix")));
    }

    #[test]
    fn seed_can_be_the_pid() {
        let Ok(Some(options)) = parse_words("--mix ok=1 --seed pid") else { panic!() };
        let own = FaultMix::parse("ok=1", u64::from(std::process::id()));
        assert_eq!(options.mix, own.ok());
    }

    #[test]
    fn shape_has_a_default_revision() {
        let check = |line: &str, expected: &str| {
            let Ok(Some(options)) = parse_words(line) else { panic!("{line}") };
            assert_eq!(Ok(options.revisions), SupportedRevisions::parse(expected), "{line}");
        };
        check("--http 127.0.0.1:0", "2025-11-25");
        check("--http 127.0.0.1:0 --shape stateless", "2026-07-28");
        check("--http 127.0.0.1:0 --shape stateless --revision 2025-06-18", "2025-06-18");
        check("--http 127.0.0.1:0 --shape sse", "2024-11-05");
        check("--http 127.0.0.1:0 --shape dual", "dual");
        check("--shape dual", "2025-11-25");
    }

    #[test]
    fn invalid_command_line_is_explained() {
        let check = |line: &str, expected: &str| {
            assert_eq!(parse_words(line).err().as_deref(), Some(expected));
        };
        check("--plan", "`--plan` needs a value");
        check("--plan call:0=dup", "--plan: in `call:0=dup`: counting starts at 1");
        check("--mix ok", "--mix: `ok` has no weight, as in `ok=80`");
        check("--page-size 0", "--page-size: `0` is not a page size");
        check("--nice", "unknown option `--nice`");
        check("--plan status", "--plan: `status` needs `--http`");
        check("--plan http=exit", "--plan: `exit` needs `--http`");
        check("--http here", "--http: `here` is not an address, as in `127.0.0.1:0`");
        check(
            "--shape round",
            "--shape: unknown variant `round`, expected one of `stateless`, `session`, `sse`, `dual`",
        );
        check(
            "--http 127.0.0.1:0 --shape session --revision modern",
            "--shape: 2026-07-28 has no sessions; use stateless or dual",
        );
    }

    #[test]
    fn tree_depth_comes_from_the_plan_or_the_role() {
        let check = |line: &str, expected: u64| {
            let Ok(Some(options)) = parse_words(line) else { panic!("{line}") };
            assert_eq!(options.levels_left(), expected, "{line}");
        };
        check("", 0);
        check("--plan tree", 1);
        check("--plan tree=2", 2);
        check("--plan tree=2 --role inside:1", 1);
        check("--plan tree=2 --role inside:1 --role inside:0", 0);
    }
}
