//! The gates: what each of them promises, and how long it may take.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One promise that is put to the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[clap(rename_all = "UPPER")]
pub(crate) enum Gate {
    /// No process outlives us
    G01,
    /// A dead server fails its calls at once and leaves nothing
    G02,
    /// Every call has exactly one outcome
    G03,
    /// A deadline holds whatever the server does
    G04,
    /// Memory is bounded whatever the server sends
    G05,
    /// A hostile server does no harm to the others
    G14,
    /// A daemon that is asked to end does, and leaves nothing
    G15,
    /// Broken servers hold up neither the daemon nor the others
    G19,
    /// A crash shows as an error at once
    G21,
    /// A daemon that is killed leaves nothing, and loses nothing
    G22,
}

/// How much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effort {
    /// Minutes, for every commit.
    Quick,
    /// Up to an hour, for a release.
    Full,
}

impl Gate {
    pub(crate) const ALL: [Self; 10] = [
        Self::G01,
        Self::G02,
        Self::G03,
        Self::G04,
        Self::G05,
        Self::G14,
        Self::G15,
        Self::G19,
        Self::G21,
        Self::G22,
    ];

    pub(crate) fn promise(self) -> &'static str {
        match self {
            Self::G01 => "no orphans",
            Self::G02 => "server death",
            Self::G03 => "exactly one outcome",
            Self::G04 => "deadline is absolute",
            Self::G05 => "memory bound",
            Self::G14 => "blast radius",
            Self::G15 => "clean stop",
            Self::G19 => "startup independence",
            Self::G21 => "a crash shows",
            Self::G22 => "daemon death",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Effort {
    /// A gate that takes longer has failed. Far beyond what it takes on a busy machine with two cores.
    pub(crate) fn limit(self) -> Duration {
        self.select(Duration::from_mins(4), Duration::from_mins(50))
    }

    /// The one of two values that fits.
    pub(crate) fn select<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}
