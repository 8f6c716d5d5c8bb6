//! `toolrack start` and `restart`: does a server start?
//!
//! Without a daemon nothing keeps a server running after a command, so that is all there is to find out.

use serde_json::json;

use crate::failure::Failure;
use crate::keeper::{must_exist, put};
use crate::surroundings::Surroundings;
use crate::trial::trial;

/// Starts a server, sees whether it works, and ends it.
pub(crate) async fn start(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    let trial = trial(name, surroundings).await?;
    let mut said = trial.json();
    put(&mut said, "name", json!(name));
    let text = format!(
        "`{name}` starts: {}\nit has been ended again: without a daemon, a server runs as long as the command \
         that uses it",
        trial.words()
    );
    surroundings.printer.done(text, &said);
    Ok(())
}

/// The same: what does not run needs no stopping first.
pub(crate) async fn restart(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    start(name, surroundings).await
}
