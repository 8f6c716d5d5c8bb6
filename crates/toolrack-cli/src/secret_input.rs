//! Reading a secret: from a person who types it unseen, or from a pipe.
//!
//! **Invariant:** the value is never shown, and the terminal shows what is typed again afterwards, also when the
//! user leaves in the middle.

use std::io::{self, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use toolrack_service::Secret;

use crate::context::Surroundings;
use crate::elicitation::read_line;
use crate::error::Failure;
use crate::terminal::End;

/// More than any secret may have; the store says so.
const LIMIT_BYTES: u64 = (64 << 10) + 3;

/// The value of a secret: typed if there is a person, otherwise the standard input.
pub(crate) async fn read(name: &str, surroundings: &Surroundings) -> Result<Secret, Failure> {
    if surroundings.settings.terminal.input == End::Person {
        return ask(name, surroundings).await;
    }
    surroundings.blocking(piped).await
}

/// Asks a person.
async fn ask(name: &str, surroundings: &Surroundings) -> Result<Secret, Failure> {
    let printer = &surroundings.printer;
    let unseen = Unseen::begin()?;
    printer.ask(format_args!("Value of `{name}` (it is not shown): "));
    let typed = surroundings.unless_stopped(async { Ok(read_line().await) }).await;
    drop(unseen);
    printer.ask("\n");
    match typed?.map(|it| it.trim_end_matches(['\r', '\n']).to_owned()) {
        Some(value) if !value.is_empty() => Ok(Secret::from(value)),
        _ => Err(Failure::usage("no value was typed", "run it again; nothing was stored")),
    }
}

fn piped() -> Result<Secret, Failure> {
    let mut value = String::new();
    let read = io::stdin().take(LIMIT_BYTES).read_to_string(&mut value);
    let value = Secret::from(value);
    match read {
        Ok(0) => Err(Failure::usage(
            "there is no value on the standard input",
            "pipe it in, as in `pass show token | toolrack secret set NAME`, or run it at a terminal",
        )),
        Ok(_) => Ok(value),
        Err(error) => {
            let message = format!("the value cannot be read: {error}");
            Err(Failure::usage(message, "a secret is text of at most 64 KiB"))
        }
    }
}

/// A terminal that does not show what is typed, until this is dropped.
struct Unseen {
    before: Termios,
}

impl Unseen {
    fn begin() -> Result<Self, Failure> {
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).map_err(io::Error::from)?;
        Ok(Self { before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A terminal that is gone needs no mending.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).unwrap_or_default();
    }
}
