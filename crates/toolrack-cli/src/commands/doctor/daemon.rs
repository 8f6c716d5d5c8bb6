//! What keeps a server from working behind the daemon, although it works here: the daemon has another environment.

use std::collections::BTreeSet;

use toolrack_service::{ErrorCode, ServiceFault};

use super::{Finding, Health};
use crate::context::Surroundings;
use crate::daemon_client::{self, Status};
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::suggested_command::word;

/// What the daemon says of servers that were found to be sound. Of the others it would say the same.
pub(super) async fn look(
    looked: &[Finding],
    surroundings: &Surroundings,
) -> Result<Vec<Finding>, Failure> {
    let Some(daemon) = daemon_client::find(&surroundings.settings)? else { return Ok(Vec::new()) };
    let sound = sound(looked);
    Ok(match daemon.statuses().await {
        Ok(all) => {
            all.iter().filter(|it| sound.contains(it.name.as_str())).filter_map(of).collect()
        }
        Err(failure) => {
            let fix = failure.hint().unwrap_or_default().to_owned();
            vec![Finding::bad("daemon", failure.verdict(), failure.summary().message, fix)]
        }
    })
}

/// The servers of which nothing but good was found.
fn sound(findings: &[Finding]) -> BTreeSet<&str> {
    let (mut good, mut others) = (BTreeSet::new(), BTreeSet::new());
    for it in findings {
        let named = if it.health == Health::Good { &mut good } else { &mut others };
        named.extend(it.server.as_deref());
    }
    &good - &others
}

/// What is wrong with a server of the daemon, if something is.
fn of(status: &Status) -> Option<Finding> {
    let ServiceFault { code, message, hint, .. } = status.problem.clone()?.in_detail();
    let name = &status.name;
    let typed = word(name);
    let verdict = match code {
        // It is a program or a package that is not there, and nothing that was typed.
        ErrorCode::NotFound => Verdict::Unreachable,
        code => Verdict::of(code),
    };
    let usual =
        || format!("`toolrack restart {typed}`; `toolrack logs {typed}` shows what it wrote");
    let detail = format!("it does not run there: {message}");
    Some(Finding::bad("daemon", verdict, detail, hint.unwrap_or_else(usual)).of(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_sound_if_nothing_else_is_said() {
        let good = |name| Finding::good("values", "there").of(name);
        let bad = Finding::bad("start", Verdict::Unreachable, "exit 3".into(), "mend it".into());
        let skipped = Finding { health: Health::Skipped, ..Finding::good("start", "disabled") };
        let findings = [
            Finding::good("home", "there"),
            good("a"),
            good("b"),
            bad.of("b"),
            skipped.of("c"),
            good("d"),
        ];
        assert_eq!(sound(&findings), BTreeSet::from(["a", "d"]));
    }
}
