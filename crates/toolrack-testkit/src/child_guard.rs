//! A program that does not outlive its test.

use std::io::{self, Read};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use crate::wait::poll;

/// A program that is killed when it is dropped.
#[derive(Debug)]
pub struct Kept(Child);

impl Kept {
    /// Takes the program into custody.
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    /// Waits for its end and gives what it printed, on both outputs.
    ///
    /// Fails with `TimedOut` when it does not end in time.
    pub fn output(&mut self, patience: Duration) -> io::Result<(ExitStatus, String, String)> {
        let mut status = None;
        let ended = poll(patience, || {
            status = self.0.try_wait().ok().flatten();
            status.is_some()
        });
        let status = status.filter(|_| ended).ok_or(io::ErrorKind::TimedOut)?;
        let (mut said, mut complained) = (String::new(), String::new());
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said)?;
        }
        if let Some(output) = &mut self.0.stderr {
            output.read_to_string(&mut complained)?;
        }
        Ok((status, said, complained))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // It may have ended by itself meanwhile; either way it is reaped.
            self.0.kill().unwrap_or_default();
            drop(self.0.wait());
        }
    }
}
