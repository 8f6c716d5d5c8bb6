//! Custody of a bare process group, where there is no guardian.
//!
//! It ends what stays in the server's group, while we live. What leaves the group, or outlives us, is
//! out of reach: that is what guardians are for.

use std::future::pending;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use toolrack_transport::{Exit, TransportError, after};

use super::cleanup_command::Farewell;
use super::{Life, Wish, refused};
use crate::guardian::{Climb, Event, Order};
use crate::launch_spec::LaunchSpec;

/// How often a group without its server is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A server and the group it leads.
#[derive(Debug)]
pub(crate) struct Grouped {
    child: Child,
    group: Group,
    climb: Climb,
    alarm: Option<Instant>,
    farewell: Farewell,
}

/// A process group that is killed when nobody holds it any more.
#[derive(Debug)]
struct Group(Option<Pid>);

pub(super) fn start(
    spec: &LaunchSpec,
    [input, output, errors]: [OwnedFd; 3],
) -> Result<Grouped, TransportError> {
    #[expect(clippy::disallowed_methods, reason = "this is where servers are started")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    command.process_group(0);
    if let Some(dir) = &spec.cwd {
        command.current_dir(dir);
    }
    let child = command.spawn().map_err(|error| refused(spec, error))?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let farewell = Farewell::of(spec);
    Ok(Grouped { child, group: Group(pid), climb: Climb::new(), alarm: None, farewell })
}

impl Grouped {
    pub(super) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn keep(
        mut self,
        mut wishes: watch::Receiver<Wish>,
        tell: &(dyn Fn(Life) + Sync),
    ) {
        let mut exit = None;
        loop {
            tokio::select! {
                status = self.child.wait(), if exit.is_none() => {
                    let how = status.map_or(Exit::Unknown, exit_of);
                    exit = Some(how);
                    tell(Life::Exited(how));
                    self.obey(Event::ServerGone);
                }
                wish = wishes.changed() => {
                    match wish.map_or(Wish::Abandon, |()| *wishes.borrow_and_update()) {
                        Wish::Run => {}
                        Wish::Stop(ladder) => self.obey(Event::Stop(ladder)),
                        Wish::Abandon => {
                            self.group.signal(Signal::KILL);
                            let _ended = self.child.wait().await;
                            return self.farewell.say().await;
                        }
                    }
                }
                () = until(self.alarm) => {
                    self.alarm = None;
                    self.obey(Event::Alarm);
                }
                () = until(exit.map(|_| Instant::now() + LOOK_AGAIN)) => {}
            }
            if let Some(how) = exit.filter(|_| self.group.is_empty()) {
                self.group.0 = None;
                self.farewell.say().await;
                tell(Life::Gone(how));
                return;
            }
        }
    }

    fn obey(&mut self, event: Event) {
        let wait = match self.climb.step(event) {
            Order::Nothing | Order::Finish => return,
            Order::Wait(wait) => wait,
            Order::Terminate(wait) => {
                self.group.signal(Signal::TERM);
                wait
            }
            Order::Kill(wait) => {
                self.group.signal(Signal::KILL);
                wait
            }
        };
        self.alarm = Some(after(Instant::now(), wait));
    }
}

impl Group {
    /// A group that is gone needs no signal.
    fn signal(&self, signal: Signal) {
        let _gone = self.0.map(|group| kill_process_group(group, signal));
    }

    fn is_empty(&self) -> bool {
        self.0.is_none_or(|group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_a_process_ended_is_told() {
        assert_eq!(exit_of(ExitStatus::from_raw(3 << 8)), Exit::Code(3));
        assert_eq!(exit_of(ExitStatus::from_raw(9)), Exit::Signal(9));
    }

    #[test]
    fn nobody_is_in_no_group() {
        assert!(Group(None).is_empty());
    }
}
