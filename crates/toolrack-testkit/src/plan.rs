//! Fault plan of a scripted server: which fault happens when. Parsing only, no effects.
//!
//! `call:3=exit(1); stderr=10MiB; call:every=5=late(200ms)+dup` is three rules. A rule names a trigger, its
//! occurrences, and the faults; without a trigger a fault uses its default one.
//!
//! **Invariant:** every parsed plan can be executed: no fault has a trigger that it does not support.

mod args;
mod fault;
#[cfg(test)]
mod tests;

pub(crate) use fault::{
    Cursor, EscapeeKind, FAULTS, Fault, Framing, Garbage, HugePlacement, Ignored, Lines,
    MemberValue, Message, Reply, Shape, Stream, WrongId,
};

use self::fault::fault_name;
use crate::harness::splitmix64;
use crate::quantity;

/// Event at which a fault can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Before anything is read.
    Start,
    Initialize,
    Discover,
    Initialized,
    List,
    /// The other lists.
    Resources,
    Templates,
    Prompts,
    Call,
    Listen,
    /// A request with an unknown method.
    Unknown,
    /// Any message, before it is parsed.
    Message,
    Eof,
    /// Any HTTP request, before it is handled.
    Http,
}

impl Trigger {
    pub(crate) const ALL: [(Self, &'static str, &'static str); 14] = [
        (Self::Start, "start", "before anything is read"),
        (Self::Initialize, "initialize", "the request `initialize`"),
        (Self::Discover, "discover", "the request `server/discover`, supported or not"),
        (Self::Initialized, "initialized", "the notification `initialized`"),
        (Self::List, "list", "the request `tools/list`"),
        (Self::Resources, "resources", "the request `resources/list`"),
        (Self::Templates, "templates", "the request `resources/templates/list`"),
        (Self::Prompts, "prompts", "the request `prompts/list`"),
        (Self::Call, "call", "the request `tools/call`"),
        (Self::Listen, "listen", "the request `subscriptions/listen`"),
        (Self::Unknown, "unknown", "a request with an unknown method"),
        (Self::Message, "message", "any message, before it is parsed"),
        (Self::Eof, "eof", "the end of the input"),
        (Self::Http, "http", "any HTTP request, before it is handled"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(trigger, ..)| *trigger)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(trigger, ..)| *trigger == self).map_or("", |(_, name, _)| name)
    }

    fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Resources | Self::Templates | Self::Prompts)
    }

    /// Whether the trigger is a request that gets a response.
    fn has_request(self) -> bool {
        self.is_list()
            || matches!(
                self,
                Self::Initialize | Self::Discover | Self::Call | Self::Listen | Self::Unknown
            )
    }
}

/// Occurrences of a trigger, counted from 1: the multiples of `step` in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Occurrences {
    from: u64,
    to: u64,
    step: u64,
}

impl Occurrences {
    const ALL: Self = Self { from: 1, to: u64::MAX, step: 1 };

    fn includes(self, number: u64) -> bool {
        (self.from..=self.to).contains(&number) && number.is_multiple_of(self.step)
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    trigger: Trigger,
    occurrences: Occurrences,
    name: String,
    fault: Fault,
}

/// Faults and their triggers; the default plan has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    rules: Vec<Rule>,
}

impl Plan {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for rule in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            rules.extend(parse_rule(rule).map_err(|why| format!("in `{rule}`: {why}"))?);
        }
        Ok(Self { rules })
    }

    /// Faults at the `number`-th occurrence of a trigger, in plan order.
    pub(crate) fn faults_at(&self, trigger: Trigger, number: u64) -> impl Iterator<Item = &Fault> {
        self.rules
            .iter()
            .filter(move |rule| rule.trigger == trigger && rule.occurrences.includes(number))
            .map(|rule| &rule.fault)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The first fault that needs HTTP.
    pub(crate) fn needs_http(&self) -> Option<&str> {
        let of_http = |rule: &&Rule| rule.fault.rejects_request() || rule.trigger == Trigger::Http;
        self.rules.iter().find(of_http).map(|rule| rule.name.as_str())
    }
}

fn parse_rule(text: &str) -> Result<Vec<Rule>, String> {
    let end = text.find(|character: char| !character.is_ascii_lowercase()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    match Trigger::from_name(word) {
        Some(trigger) => parse_trigger_rule(trigger, rest),
        None => parse_default_rule(text),
    }
}

/// `call:3=exit(1)+…`: everything after the trigger name.
fn parse_trigger_rule(trigger: Trigger, rest: &str) -> Result<Vec<Rule>, String> {
    let (occurrences, faults) = match rest.strip_prefix(':') {
        None => (Occurrences::ALL, rest.strip_prefix('=')),
        Some(selected) => {
            let digits = selected.strip_prefix("every=").unwrap_or(selected);
            let skipped = selected.len() - digits.len();
            let end = digits.find('=').map_or(selected.len(), |at| at + skipped);
            let (selector, faults) = selected.split_at(end);
            (parse_occurrences(selector)?, faults.strip_prefix('='))
        }
    };
    let Some(faults) = faults.filter(|faults| !faults.trim().is_empty()) else {
        return Err(format!("expected a fault, as in `{}=exit(1)`", trigger.name()));
    };
    faults.split('+').map(|fault| make_rule(fault.trim(), Some(trigger), occurrences)).collect()
}

/// `late=200ms` or `late(200ms)+dup`: faults at their default triggers.
fn parse_default_rule(text: &str) -> Result<Vec<Rule>, String> {
    if let Some((name, args)) = text.split_once('=') {
        let fault = format!("{}({})", name.trim(), args.trim());
        return Ok(vec![make_rule(&fault, None, Occurrences::ALL)?]);
    }
    text.split('+').map(|fault| make_rule(fault.trim(), None, Occurrences::ALL)).collect()
}

fn make_rule(
    text: &str,
    trigger: Option<Trigger>,
    occurrences: Occurrences,
) -> Result<Rule, String> {
    let (name, fault) = (fault_name(text).to_owned(), Fault::parse(text)?);
    let trigger = trigger.unwrap_or_else(|| fault.default_trigger());
    fault.check_trigger(&name, trigger)?;
    Ok(Rule { trigger, occurrences, name, fault })
}

fn parse_occurrences(text: &str) -> Result<Occurrences, String> {
    let positive = |text: &str| match quantity::count(text.trim()) {
        Ok(0) => Err("counting starts at 1".to_owned()),
        other => other,
    };
    if let Some(step) = text.strip_prefix("every=") {
        return Ok(Occurrences { step: positive(step)?, ..Occurrences::ALL });
    }
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let from = positive(from)?;
    let to = if to.trim().is_empty() { u64::MAX } else { positive(to)? };
    if to < from {
        return Err(format!("the range {from}-{to} is reversed"));
    }
    Ok(Occurrences { from, to, step: 1 })
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FaultMix {
    weighted: Vec<(u64, Fault)>,
    total: u64,
    seed: u64,
}

impl FaultMix {
    pub(crate) fn parse(text: &str, seed: u64) -> Result<Self, String> {
        let mut weighted = Vec::new();
        for entry in split_outside_parentheses(text) {
            let Some((fault, weight)) = entry.rsplit_once('=') else {
                return Err(format!("`{entry}` has no weight, as in `ok=80`"));
            };
            let name = fault_name(fault.trim());
            let fault = Fault::parse(fault.trim())?;
            fault
                .check_trigger(name, Trigger::Call)
                .map_err(|_why| format!("`{name}` cannot happen at a call"))?;
            weighted.push((quantity::count(weight.trim())?, fault));
        }
        match weighted.iter().map(|(weight, _)| weight).sum() {
            0 => Err("a mix needs at least one weight above 0".to_owned()),
            total => Ok(Self { weighted, total, seed }),
        }
    }

    /// The fault of the call with this number.
    pub(crate) fn pick(&self, number: u64) -> &Fault {
        let mut at = splitmix64(self.seed ^ splitmix64(number)) % self.total;
        for (weight, fault) in &self.weighted {
            if at < *weight {
                return fault;
            }
            at -= weight;
        }
        &Fault::Ok
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}
