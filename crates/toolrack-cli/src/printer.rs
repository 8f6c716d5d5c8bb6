//! All speech of the program: data to the standard output, talk to the standard error.
//!
//! **Invariant:** nothing else prints. A reader that has gone away (`toolrack … | head`) is no failure:
//! what is said to it is lost, and the command goes on to its end.

#![expect(
    clippy::unused_self,
    reason = "speaking is the printer's alone, whether or not it looks at itself"
)]

use std::fmt;
use std::io;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::verdict::{Failure, Verdict};

/// The one who speaks.
#[derive(Debug)]
pub(crate) struct Printer {
    in_color: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { in_color: io::stdout().is_terminal() }
    }

    /// Something the user asked for.
    pub(crate) fn line(&self, text: impl fmt::Display) {
        let _heard = writeln!(io::stdout(), "{text}");
    }

    /// A heading above what the user asked for.
    pub(crate) fn heading(&self, text: impl fmt::Display) {
        let (bold, plain) = if self.in_color { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        self.line(format_args!("\n{bold}{text}{plain}"));
    }

    /// A group of progress bars, which is silent where nobody watches.
    pub(crate) fn bars(&self) -> MultiProgress {
        MultiProgress::with_draw_target(ProgressDrawTarget::stderr())
    }

    /// One bar with a name in front.
    pub(crate) fn bar(&self, bars: &MultiProgress, name: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("  {prefix:<14} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_bar());
        let bar = bars.add(ProgressBar::new(length)).with_style(style);
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// What was typed wrongly, in the parser's own words.
    pub(crate) fn usage(&self, error: &clap::Error) -> Verdict {
        let _heard = error.print();
        if error.use_stderr() { Verdict::Usage } else { Verdict::Success }
    }

    /// A failure with its causes in one line, and what to do about it in another.
    pub(crate) fn failure(&self, failure: &Failure) -> Verdict {
        let _heard = writeln!(io::stderr(), "error: {failure}");
        if let Some(hint) = failure.hint() {
            let _heard = writeln!(io::stderr(), "hint: {hint}");
        }
        failure.verdict()
    }
}
