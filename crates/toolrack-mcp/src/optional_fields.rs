//! Members of list entries that only decorate them: whatever is wrong with one, it counts as absent, and the entry
//! stays.

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::role::Role;
use crate::serde_lenient::object;

/// Keeps what can be read as a `T`, as it is written. Anything else counts as absent.
pub(crate) fn fitting<'de, D, T>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str::<T>(raw.get()).is_ok().then_some(raw))
}

/// A `T` that is written as an object. Derived readers would also take an array.
pub(crate) struct Object<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = object(deserializer)?;
        serde_json::from_str::<T>(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(PhantomData))
    }
}

/// Pictures, since 2025-11-25.
pub(crate) type Icons = Vec<Object<Icon>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read to see whether it can be")]
pub(crate) struct Icon {
    src: String,
    mime_type: Option<String>,
    sizes: Option<Vec<String>>,
    theme: Option<String>,
}

/// How a tool may be run, in 2025-11-25.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read to see whether it can be")]
pub(crate) struct Execution {
    task_support: Option<TaskSupport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum TaskSupport {
    Forbidden,
    Optional,
    Required,
}

/// Who something is for, and how much it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read to see whether it can be")]
pub(crate) struct Annotations {
    audience: Option<Vec<Role>>,
    priority: Option<f64>,
    last_modified: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Prompt;
    use crate::resource::{Resource, ResourceTemplate};
    use crate::tool::Tool;

    #[track_caller]
    fn check<T: DeserializeOwned + serde::Serialize>(sound: &str, with: &[&str]) {
        for odd in with {
            let json = format!("{},{odd}}}", sound.strip_suffix('}').unwrap());
            let read: T = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), sound, "{odd}");
        }
    }

    #[test]
    fn decoration_of_the_wrong_kind_counts_as_absent() {
        let everybody = [
            r#""title":[]"#,
            r#""description":5"#,
            r#""icons":"x""#,
            r#""icons":[5]"#,
            r#""icons":[{"src":5}]"#,
            r#""_meta":5"#,
            r#""_meta":[]"#,
            r#""annotations":5"#,
            r#""icons":[["x"]]"#,
        ];
        let tool = r#"{"name":"a","inputSchema":{}}"#;
        check::<Tool>(tool, &everybody);
        let only = [r#""outputSchema":7"#, r#""execution":5"#, r#""execution":{"taskSupport":1}"#];
        check::<Tool>(tool, &only);
        check::<Prompt>(r#"{"name":"a"}"#, &everybody);
        check::<Prompt>(
            r#"{"name":"a","arguments":[{"name":"x"}]}"#,
            &[r#""x":1"#, r#""title":7"#],
        );
        let resource = [r#""mimeType":5"#, r#""annotations":{"audience":"x"}"#, r#""size":"x""#];
        check::<Resource>(r#"{"uri":"u:","name":"a"}"#, &everybody);
        check::<Resource>(r#"{"uri":"u:","name":"a"}"#, &resource);
        check::<ResourceTemplate>(r#"{"uriTemplate":"u:","name":"a"}"#, &everybody);
        check::<ResourceTemplate>(r#"{"uriTemplate":"u:","name":"a"}"#, &resource[..2]);
    }

    #[test]
    fn sound_decoration_is_kept_to_the_byte() {
        let json = concat!(
            r#"{"name":"a","inputSchema":{},"icons":[{ "src":"x","sizes":["1x1"],"new":1 }],"#,
            r#""execution":{ "taskSupport":"optional" },"_meta":{ "a":1 }}"#
        );
        let tool: Tool = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), json);
    }
}
