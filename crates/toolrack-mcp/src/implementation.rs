//! The name tag of a program: what it says about itself. For display only, never for decisions.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::revision::Revision;
use crate::serde_lenient::or_absent;

/// What a client or server says about itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// The programmatic name.
    pub name: String,
    /// Free text, not necessarily a semantic version. Empty if the server gave none.
    #[serde(default)]
    pub version: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent")]
    pub title: Option<String>,
    /// One line about it, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent")]
    pub description: Option<String>,
    /// Its home page, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent")]
    pub website_url: Option<String>,
    /// Its icons as written, since 2025-11-25.
    pub icons: Option<Box<RawValue>>,
}

impl Implementation {
    /// What `revision` knows of it, ready to be written.
    pub fn wire(&self, revision: Revision) -> ImplementationWire<'_> {
        ImplementationWire { implementation: self, revision }
    }
}

/// An [`Implementation`] as one revision writes it.
#[derive(Debug, Clone, Copy)]
pub struct ImplementationWire<'a> {
    implementation: &'a Implementation,
    revision: Revision,
}

impl Serialize for ImplementationWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Implementation { name, version, title, description, website_url, icons } =
            self.implementation;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("version", version)?;
        if self.revision.has_titles() {
            entry(&mut map, "title", title.as_ref())?;
        }
        if self.revision.has_icons() {
            entry(&mut map, "description", description.as_ref())?;
            entry(&mut map, "websiteUrl", website_url.as_ref())?;
            entry(&mut map, "icons", icons.as_ref())?;
        }
        map.end()
    }
}

fn entry<M, T>(map: &mut M, key: &str, value: Option<&T>) -> Result<(), M::Error>
where
    M: SerializeMap,
    T: Serialize,
{
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(revision: Revision, expected: &str) {
        let full = r#"{"name":"n","version":"1","title":"T","description":"d",
            "websiteUrl":"https://e.org","icons":[{"src":"https://e.org/i.png"}],"more":1}"#;
        let implementation: Implementation = serde_json::from_str(full).unwrap();
        assert_eq!(serde_json::to_string(&implementation.wire(revision)).unwrap(), expected);
    }

    #[test]
    fn each_revision_is_told_what_it_knows() {
        check(Revision::R2024_11_05, r#"{"name":"n","version":"1"}"#);
        check(Revision::R2025_03_26, r#"{"name":"n","version":"1"}"#);
        check(Revision::R2025_06_18, r#"{"name":"n","version":"1","title":"T"}"#);
        let all = concat!(
            r#"{"name":"n","version":"1","title":"T","description":"d","#,
            r#""websiteUrl":"https://e.org","icons":[{"src":"https://e.org/i.png"}]}"#
        );
        check(Revision::R2025_11_25, all);
        check(Revision::R2026_07_28, all);
    }
}
