//! Servers whose tools are not in a list for which nobody was asked, and why.

use toolrack_service::{LogKind, LogLine};

use crate::printer::Printer;
use crate::suggested_command::word;

/// A server whose tools are not known, or not offered at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) server: String,
    pub(crate) why: Absence,
}

/// Why tools are not in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    Unasked,
    /// Somebody stopped it.
    Stopped,
    /// It did not start the last time.
    Failed,
}

impl Absence {
    const ALL: [Self; 3] = [Self::Stopped, Self::Failed, Self::Unasked];

    fn words(self) -> &'static str {
        match self {
            Self::Unasked => "not asked yet",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// What to do about it.
    fn advice(self, names: &[&str]) -> Option<String> {
        let typed = match names {
            [name] => word(name),
            _ => "NAME".to_owned(),
        };
        match self {
            Self::Unasked => None,
            Self::Stopped => Some(format!("`toolrack start {typed}` starts it")),
            Self::Failed => Some(format!("`toolrack doctor {typed}` says why")),
        }
    }
}

/// Says whose tools are not in a list.
pub(crate) fn note(absent: &[Absent], printer: &Printer) {
    for (why, names) in groups(absent) {
        let advice = why.advice(&names).map(|it| format!("; {it}")).unwrap_or_default();
        let (words, names) = (why.words(), names.join(", "));
        printer.note(format_args!("note: {words}, so not in this list: {names}{advice}"));
    }
}

/// What may be the matter if a tool is not found: nobody offers it because a server does not run.
pub(crate) fn suspicion(absent: &[Absent]) -> Option<String> {
    let idle = groups(absent).filter_map(|(why, names)| {
        let advice = why.advice(&names)?;
        Some(format!("{}, so without tools: {}; {advice}", why.words(), names.join(", ")))
    });
    let idle: Vec<String> = idle.collect();
    (!idle.is_empty()).then(|| idle.join("; "))
}

fn groups(absent: &[Absent]) -> impl Iterator<Item = (Absence, Vec<&str>)> {
    Absence::ALL.into_iter().filter_map(|why| {
        let names = absent.iter().filter(|it| it.why == why).map(|it| it.server.as_str());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then_some((why, names))
    })
}

/// How a start went for the last time, if it is remembered.
pub(crate) fn last_outcome(happened: Vec<LogLine>) -> Option<LogLine> {
    let is_outcome =
        |it: &LogLine| matches!(it.kind, LogKind::Ready | LogKind::Failure | LogKind::NeedsLogin);
    happened.into_iter().rev().find(is_outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(absent: &[(&str, Absence)], expected: Option<&str>) {
        let absent = absent.iter().map(|(it, why)| Absent { server: (*it).to_owned(), why: *why });
        assert_eq!(suspicion(&absent.collect::<Vec<_>>()).as_deref(), expected);
    }

    #[test]
    fn servers_that_do_not_run_are_suspected() {
        check(&[], None);
        check(&[("a", Absence::Unasked)], None);
        check(
            &[("a", Absence::Stopped), ("b", Absence::Unasked)],
            Some("stopped, so without tools: a; `toolrack start a` starts it"),
        );
        check(
            &[("a", Absence::Stopped), ("b", Absence::Stopped), ("c", Absence::Failed)],
            Some(
                "stopped, so without tools: a, b; `toolrack start NAME` starts it; failed, so without tools: c; \
                 `toolrack doctor c` says why",
            ),
        );
    }
}
