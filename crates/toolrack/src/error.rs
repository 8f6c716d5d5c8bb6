//! Why a rack cannot be opened.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;

use toolrack_config::Fault;
use toolrack_manager::RackError;

/// Why a rack cannot be opened. [`with_causes`](crate::with_causes) gives the whole reason in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The config file is not there or cannot be read.
    #[error("the config file {} cannot be read", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no tokio runtime that the servers could run in.
    #[error("a rack has to be opened within a tokio runtime")]
    NoRuntime,
    /// The config file, or a server from code, cannot be used. Its text names every fault with its place, one to a line.
    #[error("{}", Lines(.faults))]
    Faulty {
        /// Everything that is wrong, in the order of the file and then of the code. Warnings are among them.
        faults: Vec<Fault>,
    },
    /// The manager does not take orders.
    #[error("the servers cannot be started")]
    Start(#[source] RackError),
}

/// Faults as people read them: one to a line.
pub(crate) struct Lines<'a>(pub(crate) &'a [Fault]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, fault) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}
