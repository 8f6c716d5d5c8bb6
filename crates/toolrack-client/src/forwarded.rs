//! A request that is passed on: what the one who made it said of itself, and its answers to what was asked.
//!
//! **Invariant:** a modern server learns the abilities of whoever asked in the first place, never ours, because
//! its questions go back to that one. What else the caller's request said of itself reaches a server of either era.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use toolrack_mcp::{InputResponses, MetaKey};
use toolrack_transport::write_text;

/// For whom a request is passed on.
#[derive(Debug, Clone, Default)]
pub struct Behalf {
    /// Members of `_meta` that introduce the caller to a modern server, separated by commas.
    members: Box<[u8]>,
    /// The other members of its `_meta`, in the same manner.
    others: Box<[u8]>,
    pub(crate) answers: Option<InputResponses>,
    pub(crate) state: Option<String>,
    noting: Option<Noting>,
}

#[derive(Clone)]
struct Noting(Arc<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Noting")
    }
}

impl Behalf {
    /// A caller with these abilities and this name, both as written, whose request had these other members in
    /// its `_meta`.
    pub fn new(
        capabilities: &RawValue,
        client: Option<&RawValue>,
        others: &[(&str, &RawValue)],
    ) -> Result<Self, serde_json::Error> {
        let mut introduction = vec![(MetaKey::CLIENT_CAPABILITIES, capabilities)];
        introduction.extend(client.map(|it| (MetaKey::CLIENT_INFO, it)));
        let (members, others) = (joined(&introduction)?, joined(others)?);
        Ok(Self { members, others, ..Self::default() })
    }

    /// The same with answers to what the server asked, and what it wants back with them.
    #[must_use]
    pub fn answering(self, answers: Option<InputResponses>, state: Option<String>) -> Self {
        Self { answers, state, ..self }
    }

    /// The same, with somebody who is told the id of the request before the server can know it. It must not wait.
    #[must_use]
    pub fn noting(self, tell: Arc<dyn Fn(u64) + Send + Sync>) -> Self {
        Self { noting: Some(Noting(tell)), ..self }
    }

    pub(crate) fn note(&self, id: u64) {
        if let Some(Noting(tell)) = &self.noting {
            tell(id);
        }
    }

    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    pub(crate) fn others(&self) -> &[u8] {
        &self.others
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.answers.is_some() || self.state.is_some()
    }
}

fn joined(members: &[(&str, &RawValue)]) -> Result<Box<[u8]>, serde_json::Error> {
    let mut joined = Vec::new();
    for (key, value) in members {
        if !joined.is_empty() {
            joined.push(b',');
        }
        write_text(&mut joined, key)?;
        joined.push(b':');
        joined.extend_from_slice(value.get().as_bytes());
    }
    Ok(joined.into_boxed_slice())
}
