//! The five protocol revisions, the two eras, and version negotiation.

/// Protocol revision, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Revision {
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
}

impl Revision {
    const ALL: [(Self, &str); 5] = [
        (Self::R2024_11_05, "2024-11-05"),
        (Self::R2025_03_26, "2025-03-26"),
        (Self::R2025_06_18, "2025-06-18"),
        (Self::R2025_11_25, "2025-11-25"),
        (Self::R2026_07_28, "2026-07-28"),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(revision, _)| *revision == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(revision, _)| *revision)
    }

    pub(crate) const fn era(self) -> Era {
        match self {
            Self::R2026_07_28 => Era::Modern,
            _ => Era::Legacy,
        }
    }
}

/// `Legacy` begins with `initialize`; `Modern` carries everything in the `_meta` of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// Revisions that a server supports: one only, or all of both eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupportedRevisions {
    Only(Revision),
    Dual,
}

impl Default for SupportedRevisions {
    fn default() -> Self {
        Self::Only(Revision::R2025_11_25)
    }
}

impl SupportedRevisions {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "dual" => Ok(Self::Dual),
            "modern" => Ok(Self::Only(Revision::R2026_07_28)),
            dated => Revision::parse(dated).map(Self::Only).ok_or_else(|| {
                let known = Revision::ALL.map(|(_, name)| name).join(", ");
                format!("unknown revision `{dated}`; expected one of {known}, modern, dual")
            }),
        }
    }

    /// Newest first, as in a discovery result.
    pub(crate) fn supported(self) -> Vec<&'static str> {
        match self {
            Self::Only(revision) => vec![revision.as_str()],
            Self::Dual => Revision::ALL.iter().rev().map(|(_, name)| *name).collect(),
        }
    }

    pub(crate) fn has_modern(self) -> bool {
        self == Self::Dual || !self.has_legacy()
    }

    pub(crate) fn has_legacy(self) -> bool {
        self != Self::Only(Revision::R2026_07_28)
    }

    /// Revision for the response to `initialize`; `None` without a legacy era.
    pub(crate) fn negotiate(self, requested: &str) -> Option<Revision> {
        match self {
            Self::Only(revision) => (revision.era() == Era::Legacy).then_some(revision),
            Self::Dual => match Revision::parse(requested) {
                Some(revision) if revision.era() == Era::Legacy => Some(revision),
                _ => Some(Revision::R2025_11_25),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_negotiates_only_legacy_revisions() {
        let check = |revisions: &str, requested: &str, expected: Option<&str>| {
            let negotiated =
                SupportedRevisions::parse(revisions).expect("a revision").negotiate(requested);
            assert_eq!(
                negotiated.map(Revision::as_str),
                expected,
                "{revisions} asked for {requested}"
            );
        };
        check("2025-03-26", "2025-11-25", Some("2025-03-26"));
        check("dual", "2024-11-05", Some("2024-11-05"));
        check("dual", "2026-07-28", Some("2025-11-25"));
        check("dual", "1999-01-01", Some("2025-11-25"));
        check("modern", "2025-11-25", None);
        check("2026-07-28", "2026-07-28", None);
    }

    #[test]
    fn unknown_revision_error_lists_the_known_ones() {
        assert_eq!(
            SupportedRevisions::parse("2025-01-01"),
            Err(
                "unknown revision `2025-01-01`; expected one of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, \
                 2026-07-28, modern, dual"
                    .to_owned()
            )
        );
    }
}
