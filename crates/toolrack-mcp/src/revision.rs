//! Protocol revisions, the two eras, and the features of each revision.
//!
//! **Invariant:** variants are in chronological order, so `<` means "older than".

use std::fmt;

use serde::{Serialize, Serializer};

/// A released protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// `2024-11-05`
    R2024_11_05,
    /// `2025-03-26`
    R2025_03_26,
    /// `2025-06-18`
    R2025_06_18,
    /// `2025-11-25`, the last revision with a handshake.
    R2025_11_25,
    /// `2026-07-28`, the first without one.
    R2026_07_28,
}

/// Legacy (with `initialize`) or modern (without).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize` handshake, then a session.
    Legacy,
    /// No handshake: every request has client info and capabilities in `_meta`.
    Modern,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: &'static [Self] = &[
        Self::R2024_11_05,
        Self::R2025_03_26,
        Self::R2025_06_18,
        Self::R2025_11_25,
        Self::R2026_07_28,
    ];

    /// Preferred revision of a modern connection.
    pub const LATEST: Self = Self::R2026_07_28;

    /// Revision that `initialize` requests. Never a modern one: a server may echo a version that it does not support.
    pub const LATEST_LEGACY: Self = Self::R2025_11_25;

    /// The string on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::R2024_11_05 => "2024-11-05",
            Self::R2025_03_26 => "2025-03-26",
            Self::R2025_06_18 => "2025-06-18",
            Self::R2025_11_25 => "2025-11-25",
            Self::R2026_07_28 => "2026-07-28",
        }
    }

    /// Parses the string on the wire. `None` for an unknown version.
    pub fn parse(text: &str) -> Option<Self> {
        // Never released, but some servers still send it; the features we use are those of the
        // first release.
        if text == "2024-10-07" {
            return Some(Self::R2024_11_05);
        }
        Self::ALL.iter().copied().find(|revision| revision.as_str() == text)
    }

    /// The newest revision of `era` among `offered`.
    pub fn newest_of<S: AsRef<str>>(offered: &[S], era: Era) -> Option<Self> {
        offered
            .iter()
            .filter_map(|text| Self::parse(text.as_ref()))
            .filter(|revision| revision.era() == era)
            .max()
    }

    /// Whether it starts with a handshake.
    pub const fn era(self) -> Era {
        match self {
            Self::R2024_11_05 | Self::R2025_03_26 | Self::R2025_06_18 | Self::R2025_11_25 => {
                Era::Legacy
            }
            Self::R2026_07_28 => Era::Modern,
        }
    }

    /// Whether batches are allowed.
    pub fn has_batches(self) -> bool {
        self == Self::R2025_03_26
    }

    /// Whether progress may have a `message`.
    pub fn has_progress_message(self) -> bool {
        self >= Self::R2025_03_26
    }

    /// Whether completion requests may include previous arguments.
    pub fn has_completion_context(self) -> bool {
        self >= Self::R2025_06_18
    }

    /// Whether form elicitation exists.
    pub fn has_elicitation(self) -> bool {
        self >= Self::R2025_06_18
    }

    /// Whether URL elicitation exists.
    pub fn has_url_elicitation(self) -> bool {
        self >= Self::R2025_11_25
    }

    /// Whether sampling supports tools and messages with several blocks.
    pub fn has_sampling_tools(self) -> bool {
        self >= Self::R2025_11_25
    }

    /// Whether tasks are part of the revision; later they are an extension.
    pub fn has_core_tasks(self) -> bool {
        self == Self::R2025_11_25
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<Revision>) {
        assert_eq!(Revision::parse(text), expected);
    }

    #[test]
    fn known_revisions_are_parsed() {
        for &revision in Revision::ALL {
            check(revision.as_str(), Some(revision));
        }
        check("2024-10-07", Some(Revision::R2024_11_05));
        check("2026-07-29", None);
        check("", None);
        check("2025-11-25 ", None);
    }

    #[test]
    fn revisions_are_ordered_by_date() {
        let mut sorted = Revision::ALL.to_vec();
        sorted.sort_by_key(|revision| revision.as_str());
        assert_eq!(sorted, Revision::ALL);
        assert!(Revision::ALL.is_sorted());
    }

    #[test]
    fn preferred_revisions_are_the_newest_of_their_era() {
        let all: Vec<_> = Revision::ALL.iter().map(|revision| revision.as_str()).collect();
        assert_eq!(Revision::newest_of(&all, Era::Modern), Some(Revision::LATEST));
        assert_eq!(Revision::newest_of(&all, Era::Legacy), Some(Revision::LATEST_LEGACY));
        assert_eq!(Revision::newest_of(&["2027-01-01", "2025-03-26"], Era::Modern), None);
    }

    #[test]
    fn only_the_second_revision_has_batches() {
        let with: Vec<_> = Revision::ALL.iter().filter(|revision| revision.has_batches()).collect();
        assert_eq!(with, [&Revision::R2025_03_26]);
    }
}
