//! Client capabilities, serialized for each revision.
//!
//! **Invariant:** only capabilities that the revision defines are declared, and never client-side tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::revision::{Era, Revision};
use crate::serde_lenient::{flag, is_off, or_absent, or_default};

/// Client capabilities. Servers use the same shape to name missing ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClientCapabilities {
    /// Experimental features by name, each an object.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub experimental: BTreeMap<String, Box<RawValue>>,
    /// The client lists its roots.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// The client forwards sampling requests to a model.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCapability>,
    /// The client forwards elicitation to the user.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// Extensions by identifier, each an object; `{}` means support without settings.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, Box<RawValue>>,
}

/// Settings of the roots capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootsCapability {
    /// The client announces changes. Legacy era only.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub list_changed: bool,
}

/// Settings of the sampling capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SamplingCapability {
    /// Sampling requests may have tools, since 2025-11-25.
    #[serde(default, with = "flag", skip_serializing_if = "is_off")]
    pub tools: bool,
    /// Sampling requests may include the context of other servers, since 2025-11-25.
    #[serde(default, with = "flag", skip_serializing_if = "is_off")]
    pub context: bool,
}

/// Supported modes of elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ElicitationModes")]
pub struct ElicitationCapability {
    /// Form mode.
    #[serde(with = "flag", skip_serializing_if = "is_off")]
    pub form: bool,
    /// URL mode, since 2025-11-25.
    #[serde(with = "flag", skip_serializing_if = "is_off")]
    pub url: bool,
}

#[derive(Deserialize)]
struct ElicitationModes {
    #[serde(default, with = "flag")]
    form: bool,
    #[serde(default, with = "flag")]
    url: bool,
}

impl From<ElicitationModes> for ElicitationCapability {
    /// Spec 2025-11-25, elicitation §Capabilities: an empty object means forms.
    fn from(modes: ElicitationModes) -> Self {
        Self { form: modes.form || !modes.url, url: modes.url }
    }
}

impl ElicitationCapability {
    /// `None` if the revision has none of the offered modes: then elicitation must not be declared.
    fn wire(self, revision: Revision) -> Option<Self> {
        let has_url = revision.has_url_elicitation();
        let (form, url) = (self.form && revision.has_elicitation(), self.url && has_url);
        // Before URL mode existed, the object was empty and meant form mode.
        (form || url).then_some(Self { form: form && has_url, url })
    }
}

impl ClientCapabilities {
    /// The capabilities that `revision` defines, to be serialized.
    #[must_use]
    pub fn wire(&self, revision: Revision) -> Self {
        let is_modern = revision.era() == Era::Modern;
        let has_settings = revision.has_sampling_tools();
        Self {
            experimental: self.experimental.clone(),
            roots: self
                .roots
                .map(|roots| RootsCapability { list_changed: roots.list_changed && !is_modern }),
            sampling: self.sampling.map(|sampling| SamplingCapability {
                tools: sampling.tools && has_settings,
                context: sampling.context && has_settings,
            }),
            elicitation: self.elicitation.and_then(|offered| offered.wire(revision)),
            // The legacy schemas do not have this member.
            extensions: if is_modern { self.extensions.clone() } else { BTreeMap::new() },
        }
    }
}

#[cfg(test)]
mod tests;
