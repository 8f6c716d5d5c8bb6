//! Ending what a server has elsewhere, where there is no guardian to do it.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::launch_spec::LaunchSpec;

/// How long it may take. Whoever closes the line waits a shorter time.
const LIMIT: Duration = Duration::from_secs(20);

/// The command that does it, until it is run.
#[derive(Debug)]
pub(super) struct Farewell(Option<Command>);

impl Farewell {
    pub(super) fn of(spec: &LaunchSpec) -> Self {
        Self(spec.farewell.split_first().map(|(program, args)| {
            #[expect(clippy::disallowed_methods, reason = "this ends what a server has elsewhere")]
            let mut command = Command::new(program);
            command.args(args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.kill_on_drop(true);
            command
        }))
    }

    /// Runs it once. If it does not work, the next sweep finds what is left.
    pub(super) async fn say(&mut self) {
        let Some(mut command) = self.0.take() else { return };
        let Ok(mut child) = command.spawn() else { return };
        if timeout(LIMIT, child.wait()).await.is_err() {
            tracing::warn!("what a server has elsewhere could not be ended in time");
        }
    }
}
