//! The command line of the scripted server.

use std::path::PathBuf;
use std::time::Duration;

use crate::plan::{Fault, Mix, Moment, Plan};
use crate::quantity;
use crate::revision::{Revision, Speaks};

#[derive(Debug)]
pub(super) enum Command {
    Help,
    Run(Box<Options>),
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) speaks: Speaks,
    pub(super) plan: Plan,
    pub(super) mix: Option<Mix>,
    pub(super) n_tools: u64,
    pub(super) schema_bytes: u64,
    /// Tools per page; nothing puts all on one.
    pub(super) page_size: Option<usize>,
    pub(super) journal: Option<PathBuf>,
    pub(super) marker: Option<String>,
    pub(super) lifetime: Duration,
    pub(super) role: Role,
}

/// Which part in a play of several processes this one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    /// Part of a tree, with so many launchers still to come below.
    Inside(u64),
    Child,
    Escapee,
    /// Starts so many escapees and goes, so that they have no parent.
    Between(u64),
}

impl Options {
    /// How many launchers stand between this process and the server.
    pub(super) fn levels_left(&self) -> u64 {
        if let Role::Inside(left) = self.role {
            return left;
        }
        let levels = |fault: &Fault| match fault {
            Fault::Tree(levels) => Some(*levels),
            _ => None,
        };
        self.plan.at(Moment::Start, 1).find_map(levels).unwrap_or_default()
    }
}

pub(super) fn parse(args: &[String]) -> Result<Command, String> {
    let mut options = Options {
        speaks: Speaks::Only(Revision::R2025_11_25),
        plan: Plan::default(),
        mix: None,
        n_tools: 0,
        schema_bytes: 0,
        page_size: None,
        journal: None,
        marker: None,
        lifetime: Duration::from_mins(2),
        role: Role::Server,
    };
    let (mut mix, mut seed) = (None, 0);
    let mut left = args.iter();
    while let Some(name) = left.next() {
        if name == "--help" {
            return Ok(Command::Help);
        }
        let mut value = || left.next().ok_or_else(|| format!("`{name}` needs a value"));
        let within = |why: String| format!("{name}: {why}");
        match name.as_str() {
            "--revision" => options.speaks = Speaks::parse(value()?).map_err(within)?,
            "--plan" => {
                options.plan = Plan::parse(value()?).map_err(|it| within(it.to_string()))?;
            }
            "--mix" => mix = Some(value()?),
            "--seed" => seed = parse_seed(value()?).map_err(within)?,
            "--tools" => options.n_tools = quantity::count(value()?).map_err(within)?,
            "--schema-bytes" => options.schema_bytes = quantity::bytes(value()?).map_err(within)?,
            "--page-size" => options.page_size = Some(page_size(value()?).map_err(within)?),
            "--journal" => options.journal = Some(PathBuf::from(value()?)),
            "--marker" => options.marker = Some(value()?.clone()),
            "--lifetime" => options.lifetime = quantity::time(value()?).map_err(within)?,
            "--role" => options.role = role(value()?).map_err(within)?,
            _ => return Err(format!("no option `{name}`")),
        }
    }
    let mix = mix.map(|text| Mix::parse(text, seed).map_err(|why| format!("--mix: {why}")));
    options.mix = mix.transpose()?;
    Ok(Command::Run(Box::new(options)))
}

/// A restarted server has the same arguments; with `pid` it still meets other faults than before.
fn parse_seed(text: &str) -> Result<u64, String> {
    if text == "pid" { Ok(u64::from(std::process::id())) } else { quantity::count(text) }
}

fn page_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(format!("`{text}` is no page size")),
    }
}

/// Roles are given by the program to itself, so they are not in its help.
fn role(text: &str) -> Result<Role, String> {
    match text.split_once(':') {
        None if text == "child" => Ok(Role::Child),
        None if text == "escapee" => Ok(Role::Escapee),
        Some(("inside", left)) => Ok(Role::Inside(quantity::count(left)?)),
        Some(("between", n_escapees)) => Ok(Role::Between(quantity::count(n_escapees)?)),
        _ => Err(format!("no role `{text}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn options_are_read_in_any_order() {
        let line = "--seed 7 --mix ok=1 --revision dual --tools 3 --page-size 2 --lifetime 5s";
        let Ok(Command::Run(options)) = parse_words(line) else { panic!("{line}") };
        let read = (options.speaks, options.n_tools, options.page_size, options.lifetime);
        assert_eq!(read, (Speaks::Dual, 3, Some(2), Duration::from_secs(5)));
        assert_eq!(options.mix, Some(Mix::parse("ok=1", 7).expect("a mix")));
    }

    #[test]
    fn a_seed_can_be_the_process_itself() {
        let Ok(Command::Run(options)) = parse_words("--mix ok=1 --seed pid") else { panic!() };
        let own = Mix::parse("ok=1", u64::from(std::process::id()));
        assert_eq!(options.mix, own.ok());
    }

    #[test]
    fn a_wrong_command_line_says_why() {
        let check = |line: &str, expected: &str| {
            assert_eq!(parse_words(line).err().as_deref(), Some(expected));
        };
        check("--plan", "`--plan` needs a value");
        check("--plan call:0=dup", "--plan: in `call:0=dup`: counting starts at 1");
        check("--mix ok", "--mix: `ok` has no weight, as in `ok=80`");
        check("--page-size 0", "--page-size: `0` is no page size");
        check("--nice", "no option `--nice`");
    }

    #[test]
    fn a_tree_has_the_levels_of_its_plan_until_it_is_inside() {
        let check = |line: &str, expected: u64| {
            let Ok(Command::Run(options)) = parse_words(line) else { panic!("{line}") };
            assert_eq!(options.levels_left(), expected, "{line}");
        };
        check("", 0);
        check("--plan tree", 1);
        check("--plan tree=2", 2);
        check("--plan tree=2 --role inside:1", 1);
        check("--plan tree=2 --role inside:1 --role inside:0", 0);
    }
}
