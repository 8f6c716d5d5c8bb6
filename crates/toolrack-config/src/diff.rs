//! What has to change when one set of servers becomes another.
//!
//! **Invariant:** every name of either set is in exactly one of `connect`, `disconnect`, `reconnect`
//! and `keep`.

use std::collections::HashMap;

use crate::fingerprint::fingerprint;
use crate::server::McpServerConfig;

/// What to do with each server, by name. The order is that of the new set, then of the old one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Wanted now, and not before.
    pub connect: Vec<String>,
    /// Wanted before, and not now: gone or disabled.
    pub disconnect: Vec<String>,
    /// Wanted before and now, but reached in another way.
    pub reconnect: Vec<String>,
    /// Left as they are, whether connected or not.
    pub keep: Vec<String>,
    /// Those of `keep` whose other settings have changed, such as `timeout` or `deny`.
    pub adjust: Vec<String>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Self { connect, disconnect, reconnect, keep: _, adjust } = self;
        [connect, disconnect, reconnect, adjust].iter().all(|it| it.is_empty())
    }
}

/// Compares two sets of servers. If a name is there twice, the last one counts.
pub fn diff(old: &[McpServerConfig], new: &[McpServerConfig]) -> Plan {
    let before = by_name(old);
    let after = by_name(new);
    let mut plan = Plan::default();
    for (name, (_, config)) in in_order(&after) {
        sort_in(&mut plan, name, before.get(name).map(|it| it.1), Some(config));
    }
    for (name, (_, config)) in in_order(&before) {
        if !after.contains_key(name) {
            sort_in(&mut plan, name, Some(config), None);
        }
    }
    plan
}

fn sort_in(
    plan: &mut Plan,
    name: &str,
    old: Option<&McpServerConfig>,
    new: Option<&McpServerConfig>,
) {
    let was = old.filter(|it| it.enabled);
    let will = new.filter(|it| it.enabled);
    let list = match (was, will) {
        (None, Some(_)) => &mut plan.connect,
        (Some(_), None) => &mut plan.disconnect,
        (Some(was), Some(will)) if fingerprint(was) != fingerprint(will) => &mut plan.reconnect,
        (None, None) | (Some(_), Some(_)) => {
            if old != new {
                plan.adjust.push(name.to_owned());
            }
            &mut plan.keep
        }
    };
    list.push(name.to_owned());
}

type ByName<'a> = HashMap<&'a str, (usize, &'a McpServerConfig)>;

fn by_name(configs: &[McpServerConfig]) -> ByName<'_> {
    configs.iter().enumerate().map(|(at, it)| (it.name.as_str(), (at, it))).collect()
}

fn in_order<'a>(configs: &ByName<'a>) -> Vec<(&'a str, (usize, &'a McpServerConfig))> {
    let mut sorted: Vec<_> = configs.iter().map(|(&name, &entry)| (name, entry)).collect();
    sorted.sort_unstable_by_key(|(_, (at, _))| *at);
    sorted
}
