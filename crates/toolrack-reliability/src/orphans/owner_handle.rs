//! A victim as its killer sees it: started, listened to, asked, and held by a handle.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use toolrack_testkit::Marker;

use crate::owner::{ASK, READY, SWEPT, Sweep};
use crate::process::{self, Handle};
use crate::subreaper::Nursery;

/// How long a victim may take for anything it is waited for. Far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lines a victim may be ahead of us. It prints few, so it never waits.
const LINES_AHEAD: usize = 16;

pub(super) struct Prey {
    pub(super) handle: Handle,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Prey {
    /// Starts a victim that carries the marker, as all it starts will.
    pub(super) fn start(nursery: &Nursery, marker: &Marker, sweep: Sweep) -> Result<Self, String> {
        let why = |error: std::io::Error| format!("the victim does not start: {error}");
        let mut command = process::ourselves().map_err(why)?;
        command.args(["victim", "--marker", marker.value()]);
        if sweep == Sweep::First {
            command.arg("--sweep");
        }
        let (name, value) = marker.pair();
        command.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut child, handle) = nursery.start(&mut command).map_err(why)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the victim has no pipes".to_owned());
        };
        let (tell, lines) = sync_channel(LINES_AHEAD);
        thread::spawn(move || {
            // A line that is cut short by the kill, or that nobody waits for any more, is of no use.
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { handle, stdin, lines })
    }

    /// Waits until every server of the victim has answered.
    pub(super) fn is_ready(&mut self) -> Result<(), String> {
        match self.hear()?.as_str() {
            READY => Ok(()),
            other => Err(format!("the victim said `{other}` instead of being ready")),
        }
    }

    /// Waits for the sweep of the victim and says how many it ended.
    pub(super) fn swept(&mut self) -> Result<u64, String> {
        let line = self.hear()?;
        let count = line.strip_prefix(SWEPT).and_then(|rest| rest.trim().parse().ok());
        count.ok_or_else(|| format!("the victim said `{line}` instead of having swept"))
    }

    /// Has the victim call each of its servers, and gives a word for each.
    pub(super) fn ask(&mut self) -> Result<Vec<String>, String> {
        let asked = self.stdin.write_all(format!("{ASK}\n").as_bytes());
        asked.map_err(|error| format!("the victim does not listen: {error}"))?;
        Ok(self.hear()?.split_whitespace().map(str::to_owned).collect())
    }

    fn hear(&mut self) -> Result<String, String> {
        let heard = self.lines.recv_timeout(PATIENCE);
        heard.map_err(|silence| format!("the victim says nothing: {silence}"))
    }
}

/// A victim that a failed cycle forgot must not stay.
impl Drop for Prey {
    fn drop(&mut self) {
        self.handle.kill();
    }
}
