//! Which era a server belongs to, decided from what it answers.
//!
//! [`Detection`] decides and the handshake obeys. No clock, line or task appears in this file, so every
//! row of the protocol's table is one line of a test.
//!
//! **Invariant:** a server that has shown itself modern is never greeted with `initialize`, and every
//! way through ends: there is one correction, one second offer and one second look.

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
pub struct Verdict {
    revision: Revision,
}

impl Verdict {
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.revision.fmt(f)
    }
}

/// What became of one question of the handshake. `T` is what a good answer says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reply<'a, T> {
    /// An answer as it should be.
    Good(T),
    /// An answer that is none.
    Odd,
    /// A refusal.
    Refused(&'a JsonRpcError),
    /// Nothing came in time.
    Silent,
    /// The server or its output went away.
    Gone,
    /// Nothing was learned: nobody is there, or lets us in, or the server is out of order.
    Barred,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask `server/discover`.
    Probe { revision: Revision, line: LineChoice, wait: Wait },
    /// Greet with `initialize`.
    Initialize { revision: Revision, line: LineChoice },
    /// Agreed.
    Settle(Revision),
    /// Give up.
    Fail(Fault),
}

/// On which line the next question goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineChoice {
    /// The one that is open.
    Same,
    /// A new one: the server of the old one is dead, or confused by what it did not know.
    Fresh,
}

/// How long the server gets to answer the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A moment: old servers may never answer.
    Short,
    /// Whatever is left of the start: nothing else can be tried.
    Long,
}

/// Why there is nothing left to try. The details are in the reply that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It speaks only these.
    Unsupported(Vec<String>),
    /// It refused for another reason.
    Refused,
    /// Its answer cannot be read.
    Odd,
    /// It did not answer.
    Silent,
    /// It went away.
    Gone,
    /// It could not be asked at all.
    Barred,
}

/// What is known so far.
#[derive(Debug)]
pub(crate) struct Detection {
    choice: EraChoice,
    remembered: Option<Verdict>,
    /// To correct the version in the probe.
    correction: Chance,
    /// To offer another version in `initialize`.
    second_offer: Chance,
    /// To probe after a refused `initialize`.
    second_look: Chance,
    /// Whether an answer to the probe has said "legacy". Silence and death say less.
    told_legacy: bool,
    /// Where to greet a server that did not answer the probe.
    after_silence: LineChoice,
    /// To greet on a fresh line one that got both questions on the same, and was confused by the first.
    fresh_greeting: Chance,
}

/// Something that may be done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chance {
    Left,
    Used,
}

impl Detection {
    pub(crate) fn new(choice: EraChoice, remembered: Option<Verdict>) -> Self {
        Self {
            choice,
            remembered,
            correction: Chance::Left,
            second_offer: Chance::Left,
            second_look: Chance::Left,
            told_legacy: false,
            after_silence: LineChoice::Fresh,
            fresh_greeting: Chance::Used,
        }
    }

    /// The same for a program that may have to fetch the server first. Its silence says nothing about the
    /// server, and to end it meanwhile would leave half of what it fetches.
    pub(crate) fn fetching(self) -> Self {
        Self { after_silence: LineChoice::Same, ..self }
    }

    /// How to begin on a fresh line.
    pub(crate) fn begin(&self) -> Step {
        let line = LineChoice::Same;
        let wait = match (self.choice, self.remembered.map(Verdict::era)) {
            (EraChoice::Legacy, _) | (EraChoice::Auto, Some(Era::Legacy)) => {
                return Step::Initialize { revision: Revision::LATEST_LEGACY, line };
            }
            (EraChoice::Modern, _) | (EraChoice::Auto, Some(Era::Modern)) => Wait::Long,
            (EraChoice::Auto, None) => Wait::Short,
        };
        Step::Probe { revision: Revision::LATEST, line, wait }
    }

    /// Judges what `server/discover` brought: the versions the server speaks, or something else.
    pub(crate) fn probed(&mut self, reply: Reply<'_, &[String]>) -> Step {
        match reply {
            Reply::Good(versions) => match Revision::best_of(versions, Era::Modern) {
                Some(revision) => Step::Settle(revision),
                None => self.offer_listed(versions),
            },
            Reply::Refused(error) if ErrorCode(error.code) == ErrorCode::UNSUPPORTED_VERSION => {
                self.correct(error)
            }
            // Spec 2026-07-28, stdio §Backward Compatibility: such a code proves a modern server, and
            // what it misses is nothing that asking again could add.
            Reply::Refused(error) if ErrorCode(error.code).proves_modern() => {
                Step::Fail(Fault::Refused)
            }
            // Any other code: servers disagree on which one means "no such method".
            Reply::Refused(_) => self.greet_legacy(Fault::Refused),
            Reply::Odd => self.greet_legacy(Fault::Odd),
            Reply::Silent => self.greet_unheard(self.after_silence, Fault::Silent),
            Reply::Gone => self.greet_unheard(LineChoice::Fresh, Fault::Gone),
            // Spec 2026-07-28, transports §Backward Compatibility: an outage is no sign of an old server.
            Reply::Barred => Step::Fail(Fault::Barred),
        }
    }

    /// Judges what `initialize` brought: the version the server chose, or something else.
    pub(crate) fn greeted(&mut self, offered: Revision, reply: Reply<'_, &str>) -> Step {
        match reply {
            Reply::Good(chosen) => match Revision::parse(chosen) {
                // Some servers answer with a modern version; then they are modern.
                Some(revision) if revision.era() == Era::Legacy || self.may_probe() => {
                    Step::Settle(revision)
                }
                _ => Step::Fail(Fault::Unsupported(vec![chosen.to_owned()])),
            },
            Reply::Refused(error) => self.reoffer(offered, error),
            Reply::Odd => Step::Fail(Fault::Odd),
            Reply::Silent | Reply::Gone if self.may_greet_again() => {
                self.fresh_greeting = Chance::Used;
                Step::Initialize { revision: offered, line: LineChoice::Fresh }
            }
            Reply::Silent => Step::Fail(Fault::Silent),
            Reply::Gone => Step::Fail(Fault::Gone),
            Reply::Barred => Step::Fail(Fault::Barred),
        }
    }

    /// Spec 2026-07-28, basic §Protocol Version Negotiation: never fall back on this error, except
    /// to a legacy version that the server itself lists.
    fn correct(&mut self, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        match Revision::best_of(&versions, Era::Modern) {
            Some(revision) if self.correction == Chance::Left => {
                self.correction = Chance::Used;
                Step::Probe { revision, line: LineChoice::Same, wait: Wait::Long }
            }
            Some(_) => Step::Fail(Fault::Refused),
            None if versions.is_empty() => Step::Fail(Fault::Refused),
            None => self.offer_listed(&versions),
        }
    }

    /// Goes on with a legacy version out of a modern server's list, if there is one.
    fn offer_listed(&mut self, versions: &[String]) -> Step {
        match Revision::best_of(versions, Era::Legacy) {
            Some(revision) if self.choice != EraChoice::Modern => {
                self.told_legacy = true;
                Step::Initialize { revision, line: LineChoice::Same }
            }
            _ => Step::Fail(Fault::Unsupported(versions.to_vec())),
        }
    }

    /// Greets a server whose answer to the probe was that of an old one.
    fn greet_legacy(&mut self, otherwise: Fault) -> Step {
        self.told_legacy = true;
        self.greet(LineChoice::Same, otherwise)
    }

    /// Greets one of which nothing was heard, on the line that it deserves.
    fn greet_unheard(&mut self, line: LineChoice, otherwise: Fault) -> Step {
        self.told_legacy = false;
        if line == LineChoice::Same {
            self.fresh_greeting = Chance::Left;
        }
        self.greet(line, otherwise)
    }

    fn greet(&self, line: LineChoice, otherwise: Fault) -> Step {
        if self.choice == EraChoice::Modern || self.second_look == Chance::Used {
            return Step::Fail(otherwise);
        }
        Step::Initialize { revision: Revision::LATEST_LEGACY, line }
    }

    fn reoffer(&mut self, offered: Revision, error: &JsonRpcError) -> Step {
        let versions = supported(error);
        let mutual = Revision::best_of(&versions, Era::Legacy);
        let other = mutual.filter(|it| *it != offered && self.second_offer == Chance::Left);
        if let Some(revision) = other {
            self.second_offer = Chance::Used;
            return Step::Initialize { revision, line: LineChoice::Same };
        }
        // The probe met silence or death, or was skipped, so the server may be a modern one that
        // was slow to start or has been upgraded since.
        let unproven = !self.told_legacy && self.second_look == Chance::Left;
        let maybe = versions.is_empty() || Revision::best_of(&versions, Era::Modern).is_some();
        if unproven && maybe && self.may_probe() {
            self.second_look = Chance::Used;
            let line = LineChoice::Same;
            return Step::Probe { revision: Revision::LATEST, line, wait: Wait::Long };
        }
        match mutual {
            None if !versions.is_empty() => Step::Fail(Fault::Unsupported(versions)),
            _ => Step::Fail(Fault::Refused),
        }
    }

    /// Whether a greeting that is not answered is followed by another, for which time has to be left.
    pub(crate) fn may_greet_again(&self) -> bool {
        self.fresh_greeting == Chance::Left
    }

    fn may_probe(&self) -> bool {
        self.choice != EraChoice::Legacy
    }
}

/// The versions that a refusal lists, none if it lists none.
fn supported(error: &JsonRpcError) -> Vec<String> {
    let listed = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
    let texts = listed.into_iter().flatten().filter_map(|it| it.as_str());
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
