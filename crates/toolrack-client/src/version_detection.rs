//! Protocol version detection: a state machine that decides the era from the server's replies. `Modern` is
//! 2026-07-28 and later, `Legacy` everything before.
//!
//! [`VersionDetection`] decides and the handshake performs. There is no clock, transport or task in this file,
//! so a test covers each reply of a server in one line.
//!
//! **Invariant:** a server known to be modern never gets `initialize`. Detection terminates: there is at most
//! one version retry, one second offer and one second probe.

use toolrack_mcp::{Era, ErrorCode, Revision};
use toolrack_transport::JsonRpcError;

/// Eras to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Detect the era.
    #[default]
    Auto,
    /// Send `initialize` at once.
    Legacy,
    /// Never send `initialize`.
    Modern,
}

/// Reply to one handshake request. `T` is the content of a good response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reply<'a, T> {
    /// Good response.
    Ok(T),
    /// Malformed response.
    Malformed,
    /// Error response.
    Error(&'a JsonRpcError),
    /// No response in time.
    TimedOut,
    /// The server or its output closed.
    Closed,
    /// No information: unreachable, unauthorized, or out of service.
    Unavailable,
}

/// Next step of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send `server/discover`.
    Probe { revision: Revision, transport: TransportChoice, wait: ProbeTimeout },
    /// Send `initialize`.
    Initialize { revision: Revision, transport: TransportChoice },
    /// Version negotiated.
    Done(Revision),
    /// The server supports only these versions.
    Unsupported(Vec<String>),
    /// Give up. The last reply has the details.
    Fail,
}

/// Transport for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// The open one.
    Current,
    /// A new one: the old server has exited, or is confused by an unknown method.
    New,
}

/// How long to wait for the probe's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeTimeout {
    /// Short: old servers may never respond.
    Short,
    /// All remaining time: there is no alternative left.
    Long,
}

/// Detection state.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each set once")]
pub(crate) struct VersionDetection {
    choice: EraChoice,
    known_version: Option<Revision>,
    /// The probe was repeated with a version that the server lists.
    version_retried: bool,
    /// `initialize` was repeated with another version.
    offered_twice: bool,
    /// The probe was repeated after a rejected `initialize`.
    probed_twice: bool,
    /// The probe got a reply that only a legacy server sends. Silence and exit prove less.
    answered_as_legacy: bool,
    /// Transport for `initialize` after an unanswered probe.
    after_silence: TransportChoice,
    /// Whether an unanswered `initialize` is repeated on a new transport: the server got both requests on one
    /// transport and may have been confused by the probe.
    pub(crate) may_initialize_again: bool,
}

impl VersionDetection {
    pub(crate) fn new(choice: EraChoice, known_version: Option<Revision>) -> Self {
        Self {
            choice,
            known_version,
            version_retried: false,
            offered_twice: false,
            probed_twice: false,
            answered_as_legacy: false,
            after_silence: TransportChoice::New,
            may_initialize_again: false,
        }
    }

    /// For a launcher that may have to install the server first. Its silence says nothing about the server, and
    /// killing it would leave a half-finished installation.
    pub(crate) fn with_launcher(self) -> Self {
        Self { after_silence: TransportChoice::Current, ..self }
    }

    /// First step on a new transport.
    pub(crate) fn first_step(&self) -> Step {
        let transport = TransportChoice::Current;
        let wait = match (self.choice, self.known_version.map(Revision::era)) {
            (EraChoice::Legacy, _) | (EraChoice::Auto, Some(Era::Legacy)) => {
                // A remembered verdict saves the probe, which a legacy server may answer
                // only with silence.
                return Step::Initialize { revision: Revision::LATEST_LEGACY, transport };
            }
            // No `initialize` is planned, so no time has to be kept back for it.
            (EraChoice::Modern, _) | (EraChoice::Auto, Some(Era::Modern)) => ProbeTimeout::Long,
            (EraChoice::Auto, None) => ProbeTimeout::Short,
        };
        Step::Probe { revision: Revision::LATEST, transport, wait }
    }

    /// Handles the reply to `server/discover`: the supported versions, or a failure.
    pub(crate) fn on_discover(&mut self, reply: Reply<'_, &[String]>) -> Step {
        match reply {
            Reply::Ok(versions) => match Revision::newest_of(versions, Era::Modern) {
                Some(revision) => Step::Done(revision),
                None => self.offer_listed(versions),
            },
            Reply::Error(error) if ErrorCode(error.code) == ErrorCode::UNSUPPORTED_VERSION => {
                self.retry_version(error)
            }
            // Spec 2026-07-28, stdio §Backward Compatibility: such a code proves a modern server, and a
            // repeated request would lack the same thing again.
            Reply::Error(error) if ErrorCode(error.code).is_modern_only() => Step::Fail,
            // Any other code: servers disagree on which one means "method not found".
            // Protocol facts §5.1: only a valid `DiscoverResult` or a modern error code proves a modern server.
            Reply::Error(_) | Reply::Malformed => {
                self.answered_as_legacy = true;
                self.initialize(TransportChoice::Current)
            }
            Reply::TimedOut => self.initialize_after_silence(self.after_silence),
            // Servers on older rmcp exit on any first message other than `initialize`, so they need
            // a fresh process.
            Reply::Closed => self.initialize_after_silence(TransportChoice::New),
            // Spec 2026-07-28, transports §Backward Compatibility: an outage does not indicate a legacy server.
            Reply::Unavailable => Step::Fail,
        }
    }

    /// Handles the reply to `initialize`: the version the server chose, or a failure.
    pub(crate) fn on_initialize(&mut self, offered: Revision, reply: Reply<'_, &str>) -> Step {
        match reply {
            Reply::Ok(chosen) => match Revision::parse(chosen) {
                // Some servers answer with a modern version; then they are modern.
                Some(revision) if revision.era() == Era::Legacy || self.may_probe() => {
                    Step::Done(revision)
                }
                _ => Step::Unsupported(vec![chosen.to_owned()]),
            },
            Reply::Error(error) => self.offer_other_version(offered, error),
            Reply::TimedOut | Reply::Closed if self.may_initialize_again => {
                self.may_initialize_again = false;
                Step::Initialize { revision: offered, transport: TransportChoice::New }
            }
            Reply::Malformed | Reply::TimedOut | Reply::Closed | Reply::Unavailable => Step::Fail,
        }
    }

    /// Spec 2026-07-28, basic §Protocol Version Negotiation: never fall back on this error, except to a legacy
    /// version that the server itself lists.
    fn retry_version(&mut self, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        match Revision::newest_of(&versions, Era::Modern) {
            // One correction only: a server that rejects a version from its own list
            // would loop otherwise.
            Some(revision) if !self.version_retried => {
                self.version_retried = true;
                Step::Probe {
                    revision,
                    transport: TransportChoice::Current,
                    wait: ProbeTimeout::Long,
                }
            }
            Some(_) => Step::Fail,
            // The code alone proves a modern server; without a list there is no version to offer.
            None if versions.is_empty() => Step::Fail,
            None => self.offer_listed(&versions),
        }
    }

    /// Continues with a legacy version from a modern server's list, if any.
    fn offer_listed(&mut self, versions: &[String]) -> Step {
        match Revision::newest_of(versions, Era::Legacy) {
            // A dual-era server without a common modern version. Its list proves that
            // it accepts `initialize`.
            Some(revision) if self.choice != EraChoice::Modern => {
                self.answered_as_legacy = true;
                Step::Initialize { revision, transport: TransportChoice::Current }
            }
            _ => Step::Unsupported(versions.to_vec()),
        }
    }

    /// Sends `initialize` after an unanswered probe.
    fn initialize_after_silence(&mut self, transport: TransportChoice) -> Step {
        self.answered_as_legacy = false;
        // This server gets `initialize` behind an unanswered probe. If it stays silent, the probe may be the
        // reason, so it deserves one start with `initialize` as the first message.
        if transport == TransportChoice::Current {
            self.may_initialize_again = true;
        }
        self.initialize(transport)
    }

    fn initialize(&self, transport: TransportChoice) -> Step {
        // A second probe follows a rejected `initialize`; another `initialize` would start a loop.
        if self.choice == EraChoice::Modern || self.probed_twice {
            return Step::Fail;
        }
        Step::Initialize { revision: Revision::LATEST_LEGACY, transport }
    }

    fn offer_other_version(&mut self, offered: Revision, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        // Some servers reject an unknown version with an error and `data.supported`, where the
        // specification wants a counter-offer in the result.
        let common = Revision::newest_of(&versions, Era::Legacy);
        let other = common.filter(|revision| *revision != offered && !self.offered_twice);
        if let Some(revision) = other {
            self.offered_twice = true;
            return Step::Initialize { revision, transport: TransportChoice::Current };
        }
        // The probe went unanswered or was skipped, so the server may be modern but slow to start, or
        // upgraded since.
        let era_unproven = !self.answered_as_legacy && !self.probed_twice;
        let may_be_modern =
            versions.is_empty() || Revision::newest_of(&versions, Era::Modern).is_some();
        if era_unproven && may_be_modern && self.may_probe() {
            self.probed_twice = true;
            let transport = TransportChoice::Current;
            return Step::Probe { revision: Revision::LATEST, transport, wait: ProbeTimeout::Long };
        }
        match common {
            None if !versions.is_empty() => Step::Unsupported(versions),
            _ => Step::Fail,
        }
    }

    fn may_probe(&self) -> bool {
        self.choice != EraChoice::Legacy
    }
}

/// The versions that an error response lists, if any.
fn supported(error: &JsonRpcError) -> Vec<String> {
    let listed = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
    let texts = listed.into_iter().flatten().filter_map(|version| version.as_str());
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
