//! Running a command to its end, for what it does and not for what it could be asked.
//!
//! **Invariant:** when this returns, nothing is left of the command, whatever it has started.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{Exit, TransportError};

use crate::io_task::read_out;
use crate::launch_spec::LaunchSpec;
use crate::options::{Ladder, McpServerDef, StdioOptions};
use crate::orphan_cleanup;
use crate::process::{Custody, Life, Pipes, Wish};
use crate::stderr::Stderr;

/// How much of the output is kept. What comes after it is read and thrown away.
const OUTPUT_BYTES: usize = 1 << 20;
/// How many lines of the error output are given back.
const ERROR_LINES: usize = 50;
/// A command that is to end has nothing to say goodbye to.
const LADDER: Ladder = Ladder { close: Duration::ZERO, terminate: Duration::from_secs(1) };

/// How a command is run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Who guards it, and what it inherits.
    pub options: &'a StdioOptions,
    /// How long it may take.
    pub limit: Duration,
    /// Ends it early.
    pub stop: &'a CancellationToken,
    /// Hears each line of its error output, cleaned for people to see.
    pub heard: &'a (dyn Fn(&str) + Sync),
}

/// A command that has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How.
    pub exit: Exit,
    /// The beginning of its output, up to a mebibyte.
    pub output: String,
    /// The last lines of its error output, cleaned for people to see.
    pub errors: Arc<[String]>,
}

/// Runs a command without input to its end.
///
/// Fails with [`TransportError::Spawn`] if it cannot be started, with [`TransportError::Timeout`] when its time
/// is over and with [`TransportError::Shutdown`] when it was stopped.
///
/// # Cancel safety
/// Dropping the future ends everything that was started, without waiting.
pub async fn run(definition: &McpServerDef, how: Run<'_>) -> Result<Finished, TransportError> {
    let mark = orphan_cleanup::next();
    let spec =
        LaunchSpec::resolve(definition, how.options, &mark).map_err(TransportError::Spawn)?;
    let (custody, Pipes { input, output, errors }) =
        Custody::start(&spec, how.options, mark).await?;
    drop(input);
    let (wish, life) = (watch::Sender::new(Wish::Run), watch::Sender::new(Life::Running));
    let (mut text, stderr) = (Vec::new(), Stderr::new(how.options.mask.clone()));
    let keep = |bytes: &[u8]| {
        let room = OUTPUT_BYTES.saturating_sub(text.len()).min(bytes.len());
        text.extend_from_slice(bytes.get(..room).unwrap_or_default());
    };
    let hear = |bytes: &[u8]| stderr.feed(bytes, &mut |line| (how.heard)(line));
    let tell = |news| {
        life.send_replace(news);
    };
    // Listening begins here: the work may begin only after the first wish.
    let wishes = wish.subscribe();
    let given_up = {
        let work = async {
            tokio::join!(
                custody.keep(wishes, &tell),
                read_out(&output, gone(life.subscribe()), keep),
                read_out(&errors, gone(life.subscribe()), hear),
            )
        };
        tokio::pin!(work);
        let given_up = tokio::select! {
            biased;
            () = how.stop.cancelled() => Some(TransportError::Shutdown),
            _ended = &mut work => None,
            () = sleep(how.limit) => Some(TransportError::timed_out(how.limit)),
        };
        if given_up.is_some() {
            wish.send_replace(Wish::Stop(LADDER));
            work.await;
        }
        given_up
    };
    if let Some(error) = given_up {
        return Err(error);
    }
    let exit = match *life.borrow() {
        Life::Exited(exit) | Life::Gone(exit) => exit,
        Life::Running => Exit::Unknown,
    };
    let output = String::from_utf8_lossy(&text).into_owned();
    Ok(Finished { exit, output, errors: stderr.tail(ERROR_LINES) })
}

/// Waits until nothing is left of the command.
async fn gone(mut life: watch::Receiver<Life>) {
    // Its sender outlives every reader, so the wait cannot fail.
    let _gone = life.wait_for(|life| matches!(life, Life::Gone(_))).await;
}

impl Finished {
    /// Whether the command says that all is well.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// What it said last, for a message.
    pub fn last_words(&self) -> &str {
        let said = self.errors.iter().rev().find(|line| !line.trim().is_empty());
        said.map_or("it said nothing", |line| line.trim())
    }
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("limit", &self.limit).finish_non_exhaustive()
    }
}
