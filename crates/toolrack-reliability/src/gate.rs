//! The gates: titles, efforts and time limits.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One reliability gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[clap(rename_all = "UPPER")]
pub(crate) enum Gate {
    /// No process outlives its owner
    G01,
    /// Calls to a dead server fail at once, and nothing leaks
    G02,
    /// Every call has exactly one outcome
    G03,
    /// A deadline holds for any server behavior
    G04,
    /// Memory is bounded for any server output
    G05,
    /// A hostile server does not harm the others
    G14,
    /// A daemon stops on request and leaves no process
    G15,
    /// Broken servers delay neither the daemon nor other servers
    G19,
    /// A crash shows as an error at once
    G21,
    /// A killed daemon leaves no process and loses no data
    G22,
    /// No abuse by one server exhausts the daemon
    G23,
}

/// How long a gate runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effort {
    /// Minutes, for every commit.
    Quick,
    /// Up to an hour, for a release.
    Full,
}

impl Gate {
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
            Self::G23 => "abuse is bounded",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Effort {
    /// A gate that takes longer has failed. Far beyond its time on a busy machine with two cores.
    pub(crate) fn limit(self) -> Duration {
        self.select(Duration::from_mins(4), Duration::from_mins(50))
    }

    /// Selects a value by effort.
    pub(crate) fn select<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}
