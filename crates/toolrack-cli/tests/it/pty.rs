//! Runs the program in a pseudoterminal.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use toolrack_testkit::{eventually, skipped};

use crate::fixture::{Fixture, LONG};

/// Starts a program with a controlling terminal.
const SETSID: &str = "/usr/bin/setsid";

/// A pseudoterminal with the program in it.
pub(crate) struct Pty {
    master: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    watcher: JoinHandle<()>,
}

impl Pty {
    /// Starts the program in a terminal of `columns`. `None` if that is not possible here.
    pub(crate) fn open(
        fixture: &Fixture,
        columns: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Option<Self> {
        if !Path::new(SETSID).exists() {
            skipped("terminal", "there is no `setsid`");
            return None;
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(slave.as_fd(), size).unwrap();
        let mut command = fixture.command(SETSID);
        let end = || slave.try_clone().unwrap();
        let child = command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_toolrack")])
            .args(args)
            .envs(env.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let master = File::from(master);
        let seen = Arc::default();
        let watcher = watch(master.try_clone().unwrap(), Arc::clone(&seen));
        Some(Self { master, child, seen, watcher })
    }

    /// All output so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits for some output.
    pub(crate) fn shows(&self, what: &str) {
        eventually(LONG, &format!("{what:?} on a screen"), || {
            let text = self.text();
            assert!(!text.contains("error: ") || what.contains("error"), "{text}");
            text.contains(what)
        });
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the exit, and returns the exit code and all output.
    pub(crate) fn end(mut self, within: Duration) -> (i32, String) {
        let mut code = None;
        eventually(within, "the end of the program", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        eventually(within, "its last words", || self.watcher.is_finished());
        (code.unwrap().code().unwrap(), self.text())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // Has exited already, unless the test failed.
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

/// Collects output until the last process closes the terminal.
fn watch(mut master: File, seen: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(n_bytes @ 1..) = master.read(&mut some) {
            seen.lock().unwrap().extend_from_slice(&some[..n_bytes]);
        }
    })
}
