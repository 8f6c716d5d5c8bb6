//! What we can do for a server, written the way each revision knows it.
//!
//! **Invariant:** we never say that we run tasks for a server, and nothing is declared that a revision does not have.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::revision::{Era, Revision};
use crate::serde_lenient::{flag, or_absent, or_default};

/// What a client can do. Also the shape in which a server says what it misses.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ClientCapabilities {
    /// It can name the directories it works in.
    #[serde(default, deserialize_with = "or_absent")]
    pub roots: Option<RootsCapability>,
    /// It can ask a model on the server's behalf.
    #[serde(default, deserialize_with = "or_absent")]
    pub sampling: Option<SamplingCapability>,
    /// It can ask the user on the server's behalf.
    #[serde(default, deserialize_with = "or_absent")]
    pub elicitation: Option<ElicitationCapability>,
    /// Settings of unofficial features by name, each an object.
    #[serde(default, deserialize_with = "or_default")]
    pub experimental: BTreeMap<String, Box<RawValue>>,
    /// Settings of extensions by identifier, each an object; `{}` is support without settings.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: BTreeMap<String, Box<RawValue>>,
}

/// How roots are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootsCapability {
    /// The server is told when they change. Only in the legacy era.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

/// How sampling is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct SamplingCapability {
    /// The server may bring tools, since 2025-11-25.
    #[serde(default, deserialize_with = "flag")]
    pub tools: bool,
    /// The server may ask for the context of other servers, since 2025-11-25.
    #[serde(default, deserialize_with = "flag")]
    pub context: bool,
}

/// How the user can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "ElicitationModes")]
pub struct ElicitationCapability {
    /// By a form.
    pub form: bool,
    /// By a page that the user opens, since 2025-11-25.
    pub url: bool,
}

#[derive(Deserialize)]
struct ElicitationModes {
    #[serde(default, deserialize_with = "flag")]
    form: bool,
    #[serde(default, deserialize_with = "flag")]
    url: bool,
}

impl From<ElicitationModes> for ElicitationCapability {
    /// Spec 2025-11-25, elicitation §Capabilities: an empty object means forms.
    fn from(modes: ElicitationModes) -> Self {
        Self { form: modes.form || !modes.url, url: modes.url }
    }
}

impl ClientCapabilities {
    /// What `revision` knows of them, ready to be written.
    pub fn wire(&self, revision: Revision) -> ClientCapabilitiesWire<'_> {
        ClientCapabilitiesWire { capabilities: self, revision }
    }

    /// Whether everything that `required` asks for is among them.
    pub fn cover(&self, required: &Self) -> bool {
        let roots = required.roots.is_none() || self.roots.is_some();
        let sampling = required.sampling.is_none_or(|it| {
            self.sampling.is_some_and(|ours| ours.tools >= it.tools && ours.context >= it.context)
        });
        let elicitation = required.elicitation.is_none_or(|it| {
            self.elicitation.is_some_and(|ours| ours.form >= it.form && ours.url >= it.url)
        });
        let experimental =
            required.experimental.keys().all(|it| self.experimental.contains_key(it));
        let extensions = required.extensions.keys().all(|it| self.extensions.contains_key(it));
        roots && sampling && elicitation && experimental && extensions
    }
}

/// [`ClientCapabilities`] as one revision writes them.
#[derive(Debug, Clone, Copy)]
pub struct ClientCapabilitiesWire<'a> {
    capabilities: &'a ClientCapabilities,
    revision: Revision,
}

impl Serialize for ClientCapabilitiesWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ClientCapabilities { roots, sampling, elicitation, experimental, extensions } =
            self.capabilities;
        let mut map = serializer.serialize_map(None)?;
        if !experimental.is_empty() {
            map.serialize_entry("experimental", experimental)?;
        }
        if let Some(roots) = roots {
            let told = roots.list_changed && self.revision.era() == Era::Legacy;
            map.serialize_entry("roots", &Flags([("listChanged", told.then_some(Flag::True))]))?;
        }
        if let Some(sampling) = sampling {
            let known = self.revision.has_sampling_tools();
            let tools = (sampling.tools && known).then_some(Flag::Object);
            let context = (sampling.context && known).then_some(Flag::Object);
            map.serialize_entry("sampling", &Flags([("tools", tools), ("context", context)]))?;
        }
        if let Some(modes) = elicitation.and_then(|it| self.modes(it)) {
            map.serialize_entry("elicitation", &modes)?;
        }
        if !extensions.is_empty() && self.revision.era() == Era::Modern {
            map.serialize_entry("extensions", extensions)?;
        }
        map.end()
    }
}

impl ClientCapabilitiesWire<'_> {
    /// `None` if no mode that we offer exists in the revision: then it must not be declared at all.
    fn modes(&self, offered: ElicitationCapability) -> Option<Flags<2>> {
        let form = offered.form && self.revision.has_elicitation();
        let url = offered.url && self.revision.has_url_elicitation();
        if !form && !url {
            return None;
        }
        // Before pages came, the object was empty and meant forms.
        let named = self.revision.has_url_elicitation();
        let form = (form && named).then_some(Flag::Object);
        Some(Flags([("form", form), ("url", url.then_some(Flag::Object))]))
    }
}

/// An object of those members that are set.
struct Flags<const N: usize>([(&'static str, Option<Flag>); N]);

#[derive(Clone, Copy)]
enum Flag {
    True,
    Object,
}

impl<const N: usize> Serialize for Flags<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter_map(|&(key, flag)| Some((key, flag?))))
    }
}

impl Serialize for Flag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::True => serializer.serialize_bool(true),
            Self::Object => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

#[cfg(test)]
mod tests;
