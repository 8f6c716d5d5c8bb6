//! Client capabilities, serialized for each revision.
//!
//! **Invariant:** only capabilities that the revision defines are declared, and never client-side tasks.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::revision::{Era, Revision};
use crate::serde_lenient::{flag, or_absent, or_default};

/// Client capabilities. Servers use the same shape to name missing ones.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ClientCapabilities {
    /// The client lists its roots.
    #[serde(default, deserialize_with = "or_absent")]
    pub roots: Option<RootsCapability>,
    /// The client forwards sampling requests to a model.
    #[serde(default, deserialize_with = "or_absent")]
    pub sampling: Option<SamplingCapability>,
    /// The client forwards elicitation to the user.
    #[serde(default, deserialize_with = "or_absent")]
    pub elicitation: Option<ElicitationCapability>,
    /// Experimental features by name, each an object.
    #[serde(default, deserialize_with = "or_default")]
    pub experimental: BTreeMap<String, Box<RawValue>>,
    /// Extensions by identifier, each an object; `{}` means support without settings.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: BTreeMap<String, Box<RawValue>>,
}

/// Settings of the roots capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootsCapability {
    /// The client announces changes. Legacy era only.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

/// Settings of the sampling capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct SamplingCapability {
    /// Sampling requests may have tools, since 2025-11-25.
    #[serde(default, deserialize_with = "flag")]
    pub tools: bool,
    /// Sampling requests may include the context of other servers, since 2025-11-25.
    #[serde(default, deserialize_with = "flag")]
    pub context: bool,
}

/// Supported modes of elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "ElicitationModes")]
pub struct ElicitationCapability {
    /// Form mode.
    pub form: bool,
    /// URL mode, since 2025-11-25.
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
    /// The capabilities that `revision` defines, ready for serialization.
    pub fn wire(&self, revision: Revision) -> ClientCapabilitiesWire<'_> {
        ClientCapabilitiesWire { capabilities: self, revision }
    }

    /// Whether all capabilities of `required` are present.
    pub fn cover(&self, required: &Self) -> bool {
        let roots = required.roots.is_none() || self.roots.is_some();
        let sampling = required.sampling.is_none_or(|required| {
            self.sampling.is_some_and(|ours| {
                ours.tools >= required.tools && ours.context >= required.context
            })
        });
        let elicitation = required.elicitation.is_none_or(|required| {
            self.elicitation
                .is_some_and(|ours| ours.form >= required.form && ours.url >= required.url)
        });
        let experimental =
            required.experimental.keys().all(|name| self.experimental.contains_key(name));
        let extensions = required.extensions.keys().all(|name| self.extensions.contains_key(name));
        roots && sampling && elicitation && experimental && extensions
    }
}

/// [`ClientCapabilities`] in the format of one revision.
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
        if let Some(modes) = elicitation.and_then(|elicitation| self.modes(elicitation)) {
            map.serialize_entry("elicitation", &modes)?;
        }
        // The legacy schemas do not have this member.
        if !extensions.is_empty() && self.revision.era() == Era::Modern {
            map.serialize_entry("extensions", extensions)?;
        }
        map.end()
    }
}

impl ClientCapabilitiesWire<'_> {
    /// `None` if the revision has none of the offered modes: then elicitation must not be declared.
    fn modes(&self, offered: ElicitationCapability) -> Option<Flags<2>> {
        let form = offered.form && self.revision.has_elicitation();
        let url = offered.url && self.revision.has_url_elicitation();
        if !form && !url {
            return None;
        }
        // Before URL mode existed, the object was empty and meant form mode.
        let named = self.revision.has_url_elicitation();
        let form = (form && named).then_some(Flag::Object);
        Some(Flags([("form", form), ("url", url.then_some(Flag::Object))]))
    }
}

/// An object with the members that are set.
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
