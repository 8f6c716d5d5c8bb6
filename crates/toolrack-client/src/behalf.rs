//! A request that is passed on: what the one who made it said of itself, and its answers to what was asked.
//!
//! **Invariant:** a modern server learns the abilities of whoever asked in the first place, never ours, because
//! its questions go back to that one.

use serde_json::value::RawValue;
use toolrack_mcp::{InputResponses, MetaKey};
use toolrack_rpc::write_text;

/// For whom a request is passed on.
#[derive(Debug, Clone, Default)]
pub struct Behalf {
    /// Members of `_meta`, separated by commas.
    members: Box<[u8]>,
    pub(crate) answers: Option<InputResponses>,
    pub(crate) state: Option<String>,
}

impl Behalf {
    /// A caller with these abilities and this name, both as written, whose request had these other members in
    /// its `_meta`.
    pub fn new(
        capabilities: &RawValue,
        client: Option<&RawValue>,
        others: &[(&str, &RawValue)],
    ) -> Result<Self, serde_json::Error> {
        let mut members = Vec::new();
        let mut put = |key: &str, value: &RawValue| {
            if !members.is_empty() {
                members.push(b',');
            }
            write_text(&mut members, key)?;
            members.push(b':');
            members.extend_from_slice(value.get().as_bytes());
            Ok(())
        };
        put(MetaKey::CLIENT_CAPABILITIES, capabilities)?;
        client.map_or(Ok(()), |it| put(MetaKey::CLIENT_INFO, it))?;
        others.iter().try_for_each(|(key, value)| put(key, value))?;
        Ok(Self { members: members.into_boxed_slice(), ..Self::default() })
    }

    /// The same with answers to what the server asked, and what it wants back with them.
    #[must_use]
    pub fn answering(self, answers: Option<InputResponses>, state: Option<String>) -> Self {
        Self { answers, state, ..self }
    }

    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.answers.is_some() || self.state.is_some()
    }
}
