//! Which era a server belongs to, decided from what it answers.
//!
//! [`VersionDetection`] decides and the handshake obeys. No clock, transport or task appears in this file, so every
//! row of the protocol's table is one transport of a test.
//!
//! **Invariant:** a server that has shown itself modern is never greeted with `initialize`, and every
//! way through ends: there is one version_retry, one second offer and one second look.

use std::fmt;

use toolrack_mcp::{Era, ErrorCode, Revision};
use toolrack_transport::JsonRpcError;

/// Which eras may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Find out.
    #[default]
    Auto,
    /// Greet with `initialize` at once.
    Legacy,
    /// Never send `initialize`.
    Modern,
}

/// What was found out about a server. Worth remembering for as long as its configuration stays the same;
/// one that says legacy should be forgotten after some days, because the server may have learned more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectedVersion {
    revision: Revision,
}

impl DetectedVersion {
    /// The verdict that `revision` was agreed.
    pub fn new(revision: Revision) -> Self {
        Self { revision }
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        Revision::parse(text).map(Self::new)
    }

    /// What was agreed.
    pub fn revision(self) -> Revision {
        self.revision
    }

    /// The era it falls into.
    pub fn era(self) -> Era {
        self.revision.era()
    }
}

impl fmt::Display for DetectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.revision.fmt(f)
    }
}

/// What became of one question of the handshake. `T` is what a good answer says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reply<'a, T> {
    /// An answer as it should be.
    Ok(T),
    /// An answer that is none.
    Malformed,
    /// A refusal.
    Error(&'a JsonRpcError),
    /// Nothing came in time.
    TimedOut,
    /// The server or its output went away.
    Closed,
    /// Nothing was learned: nobody is there, or lets us in, or the server is out of order.
    Unavailable,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask `server/discover`.
    Probe { revision: Revision, transport: TransportChoice, wait: ProbeTimeout },
    /// Greet with `initialize`.
    Initialize { revision: Revision, transport: TransportChoice },
    /// Negotiated.
    Done(Revision),
    /// Give up.
    Fail(Failure),
}

/// On which transport the next question goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// The one that is open.
    Current,
    /// A new one: the server of the old one is dead, or confused by what it did not know.
    New,
}

/// How long the server gets to answer the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeTimeout {
    /// A moment: old servers may never answer.
    Short,
    /// Whatever is left of the start: nothing else can be tried.
    Long,
}

/// Why there is nothing left to try. The details are in the reply that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It speaks only these.
    Unsupported(Vec<String>),
    /// It refused for another reason.
    Error,
    /// Its answer cannot be read.
    Malformed,
    /// It did not answer.
    TimedOut,
    /// It went away.
    Closed,
    /// It could not be asked at all.
    Unavailable,
}

/// What is known so far.
#[derive(Debug)]
pub(crate) struct VersionDetection {
    choice: EraChoice,
    known_version: Option<DetectedVersion>,
    /// To correct the version in the probe.
    version_retry: OneTime,
    /// To offer another version in `initialize`.
    second_offer: OneTime,
    /// To probe after a refused `initialize`.
    second_probe: OneTime,
    /// Whether an answer to the probe has said "legacy". Silence and death say less.
    answered_as_legacy: bool,
    /// Where to greet a server that did not answer the probe.
    after_silence: TransportChoice,
    /// To greet on a fresh transport one that got both questions on the same, and was confused by the first.
    second_initialize: OneTime,
}

/// Something that may be done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OneTime {
    Left,
    Used,
}

impl VersionDetection {
    pub(crate) fn new(choice: EraChoice, known_version: Option<DetectedVersion>) -> Self {
        Self {
            choice,
            known_version,
            version_retry: OneTime::Left,
            second_offer: OneTime::Left,
            second_probe: OneTime::Left,
            answered_as_legacy: false,
            after_silence: TransportChoice::New,
            second_initialize: OneTime::Used,
        }
    }

    /// The same for a program that may have to fetch the server first. Its silence says nothing about the
    /// server, and to end it meanwhile would leave half of what it fetches.
    pub(crate) fn behind_launcher(self) -> Self {
        Self { after_silence: TransportChoice::Current, ..self }
    }

    /// How to begin on a fresh transport.
    pub(crate) fn first_step(&self) -> Step {
        let transport = TransportChoice::Current;
        let wait = match (self.choice, self.known_version.map(DetectedVersion::era)) {
            (EraChoice::Legacy, _) | (EraChoice::Auto, Some(Era::Legacy)) => {
                return Step::Initialize { revision: Revision::LATEST_LEGACY, transport };
            }
            (EraChoice::Modern, _) | (EraChoice::Auto, Some(Era::Modern)) => ProbeTimeout::Long,
            (EraChoice::Auto, None) => ProbeTimeout::Short,
        };
        Step::Probe { revision: Revision::LATEST, transport, wait }
    }

    /// Judges what `server/discover` brought: the versions the server speaks, or something else.
    pub(crate) fn on_discover(&mut self, reply: Reply<'_, &[String]>) -> Step {
        match reply {
            Reply::Ok(versions) => match Revision::best_of(versions, Era::Modern) {
                Some(revision) => Step::Done(revision),
                None => self.offer_listed(versions),
            },
            Reply::Error(error) if ErrorCode(error.code) == ErrorCode::UNSUPPORTED_VERSION => {
                self.retry_version(error)
            }
            // Spec 2026-07-28, stdio §Backward Compatibility: such a code proves a modern server, and
            // what it misses is nothing that asking again could add.
            Reply::Error(error) if ErrorCode(error.code).proves_modern() => {
                Step::Fail(Failure::Error)
            }
            // Any other code: servers disagree on which one means "no such method".
            Reply::Error(_) => self.initialize_legacy(Failure::Error),
            Reply::Malformed => self.initialize_legacy(Failure::Malformed),
            Reply::TimedOut => self.initialize_after_silence(self.after_silence, Failure::TimedOut),
            Reply::Closed => self.initialize_after_silence(TransportChoice::New, Failure::Closed),
            // Spec 2026-07-28, transports §Backward Compatibility: an outage is no sign of an old server.
            Reply::Unavailable => Step::Fail(Failure::Unavailable),
        }
    }

    /// Judges what `initialize` brought: the version the server chose, or something else.
    pub(crate) fn on_initialize(&mut self, offered: Revision, reply: Reply<'_, &str>) -> Step {
        match reply {
            Reply::Ok(chosen) => match Revision::parse(chosen) {
                // Some servers answer with a modern version; then they are modern.
                Some(revision) if revision.era() == Era::Legacy || self.may_probe() => {
                    Step::Done(revision)
                }
                _ => Step::Fail(Failure::Unsupported(vec![chosen.to_owned()])),
            },
            Reply::Error(error) => self.offer_other_version(offered, error),
            Reply::Malformed => Step::Fail(Failure::Malformed),
            Reply::TimedOut | Reply::Closed if self.may_initialize_again() => {
                self.second_initialize = OneTime::Used;
                Step::Initialize { revision: offered, transport: TransportChoice::New }
            }
            Reply::TimedOut => Step::Fail(Failure::TimedOut),
            Reply::Closed => Step::Fail(Failure::Closed),
            Reply::Unavailable => Step::Fail(Failure::Unavailable),
        }
    }

    /// Spec 2026-07-28, basic §Protocol Version Negotiation: never fall back on this error, except
    /// to a legacy version that the server itself lists.
    fn retry_version(&mut self, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        match Revision::best_of(&versions, Era::Modern) {
            Some(revision) if self.version_retry == OneTime::Left => {
                self.version_retry = OneTime::Used;
                Step::Probe {
                    revision,
                    transport: TransportChoice::Current,
                    wait: ProbeTimeout::Long,
                }
            }
            Some(_) => Step::Fail(Failure::Error),
            None if versions.is_empty() => Step::Fail(Failure::Error),
            None => self.offer_listed(&versions),
        }
    }

    /// Goes on with a legacy version out of a modern server's list, if there is one.
    fn offer_listed(&mut self, versions: &[String]) -> Step {
        match Revision::best_of(versions, Era::Legacy) {
            Some(revision) if self.choice != EraChoice::Modern => {
                self.answered_as_legacy = true;
                Step::Initialize { revision, transport: TransportChoice::Current }
            }
            _ => Step::Fail(Failure::Unsupported(versions.to_vec())),
        }
    }

    /// Greets a server whose answer to the probe was that of an old one.
    fn initialize_legacy(&mut self, failure: Failure) -> Step {
        self.answered_as_legacy = true;
        self.initialize(TransportChoice::Current, failure)
    }

    /// Greets one of which nothing was heard, on the transport that it deserves.
    fn initialize_after_silence(&mut self, transport: TransportChoice, failure: Failure) -> Step {
        self.answered_as_legacy = false;
        if transport == TransportChoice::Current {
            self.second_initialize = OneTime::Left;
        }
        self.initialize(transport, failure)
    }

    fn initialize(&self, transport: TransportChoice, failure: Failure) -> Step {
        if self.choice == EraChoice::Modern || self.second_probe == OneTime::Used {
            return Step::Fail(failure);
        }
        Step::Initialize { revision: Revision::LATEST_LEGACY, transport }
    }

    fn offer_other_version(&mut self, offered: Revision, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        let mutual = Revision::best_of(&versions, Era::Legacy);
        let other =
            mutual.filter(|revision| *revision != offered && self.second_offer == OneTime::Left);
        if let Some(revision) = other {
            self.second_offer = OneTime::Used;
            return Step::Initialize { revision, transport: TransportChoice::Current };
        }
        // The probe met silence or death, or was skipped, so the server may be a modern one that
        // was slow to start or has been upgraded since.
        let unproven = !self.answered_as_legacy && self.second_probe == OneTime::Left;
        let maybe = versions.is_empty() || Revision::best_of(&versions, Era::Modern).is_some();
        if unproven && maybe && self.may_probe() {
            self.second_probe = OneTime::Used;
            let transport = TransportChoice::Current;
            return Step::Probe { revision: Revision::LATEST, transport, wait: ProbeTimeout::Long };
        }
        match mutual {
            None if !versions.is_empty() => Step::Fail(Failure::Unsupported(versions)),
            _ => Step::Fail(Failure::Error),
        }
    }

    /// Whether a greeting that is not answered is followed by another, for which time has to be left.
    pub(crate) fn may_initialize_again(&self) -> bool {
        self.second_initialize == OneTime::Left
    }

    fn may_probe(&self) -> bool {
        self.choice != EraChoice::Legacy
    }
}

/// The versions that a refusal lists, none if it lists none.
fn supported(error: &JsonRpcError) -> Vec<String> {
    let listed = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
    let texts = listed.into_iter().flatten().filter_map(|version| version.as_str());
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
