//! What was acknowledged in all lives of the daemon, held against what is on disk.

use std::collections::HashSet;
use std::fs;

use toolrack_service::Home;

use super::load::Yield;
use crate::findings::Findings;
use crate::history::written;

/// What a daemon has to remember beyond its death.
#[derive(Debug)]
pub(super) struct Books {
    home: Home,
    /// Calls that the history has shown.
    shown: HashSet<String>,
    /// The config that was last acknowledged.
    config: String,
    n_answered: u64,
    n_saved: u64,
    /// Calls that were answered, and not yet written down when the daemon died.
    n_unwritten: u64,
}

impl Books {
    pub(super) fn open(home: Home) -> std::io::Result<Self> {
        let config = fs::read_to_string(home.config_file())?;
        let shown = HashSet::new();
        Ok(Self { home, shown, config, n_answered: 0, n_saved: 0, n_unwritten: 0 })
    }

    /// Holds what is on disk against what was acknowledged. Gives what is wrong.
    pub(super) fn settle(&mut self, gained: Yield) -> Vec<String> {
        let Yield { answered, shown, saves, failures } = gained;
        let mut faults = failures;
        self.shown.extend(shown);
        self.n_answered += answered.len() as u64;
        self.n_saved += saves.len().saturating_sub(1) as u64;
        match fs::read_to_string(self.home.config_file()) {
            Ok(found) if kept(&self.config, &saves, &found) => self.config = found,
            Ok(found) => faults.push(format!("the config is neither old nor new: {found}")),
            Err(error) => faults.push(format!("the config cannot be read: {error}")),
        }
        match written(&self.home.history_file()) {
            Ok(written) => {
                self.n_unwritten += answered.difference(&written).count() as u64;
                let n_lost = self.shown.difference(&written).count();
                if n_lost > 0 {
                    faults.push(format!("{n_lost} calls are gone that the history has shown"));
                }
            }
            Err(error) => faults.push(format!("the history cannot be used: {error}")),
        }
        faults
    }

    pub(super) fn tell(&self, findings: &mut Findings) {
        findings.count("calls_answered", self.n_answered);
        findings.count("calls_acknowledged", self.shown.len() as u64);
        findings.count("calls_unwritten", self.n_unwritten);
        findings.count("configs_saved", self.n_saved);
        if self.shown.is_empty() || self.n_saved == 0 {
            findings.fail(0, "there was no load, so nothing was put to the test");
        }
    }
}

/// Whether the config is the last one that was acknowledged, or the one that was just being saved.
fn kept(before: &str, saves: &[String], found: &str) -> bool {
    let (in_flight, acknowledged) = match saves.split_last() {
        Some((last, rest)) => (Some(last.as_str()), rest.last().map_or(before, String::as_str)),
        None => (None, before),
    };
    found == acknowledged || Some(found) == in_flight
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of some texts may be found after these were saved.
    #[track_caller]
    fn check(saves: &[&str], expected: &[&str]) {
        let saves: Vec<String> = saves.iter().map(|save| (*save).to_owned()).collect();
        let mut texts = vec!["old", "one", "two", "tw", ""];
        texts.retain(|text| kept("old", &saves, text));
        assert_eq!(texts, expected, "{saves:?}");
    }

    #[test]
    fn a_config_is_old_or_new() {
        check(&[], &["old"]);
        check(&["one"], &["old", "one"]);
        check(&["one", "two"], &["one", "two"]);
    }
}
