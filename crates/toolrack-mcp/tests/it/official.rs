//! The official JSON schemas, if they are beside the repository.
//!
//! Schemas are closed before use: a member that a revision does not list is an error, so that a test
//! notices a member of a newer revision in an older message.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolrack_mcp::Revision;

/// The schema of one revision.
pub(crate) struct Official {
    document: Value,
    defs: &'static str,
}

/// All five, oldest first; or none, with a note on stderr.
pub(crate) fn all(test: &str) -> Option<Vec<(Revision, Official)>> {
    let dir = dir(test)?;
    let read = |&revision: &Revision| {
        let mut official = Official::read(&dir.join(format!("{revision}.json")));
        close(&mut official.document);
        (revision, official)
    };
    Some(Revision::ALL.iter().map(read).collect())
}

/// Schema of the modern tasks extension, assembled from parts that list only their own members.
pub(crate) fn tasks(test: &str) -> Option<Official> {
    Some(Official::read(&dir(test)?.join("ext-tasks-draft-e434597.json")))
}

fn dir(test: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/protocol/schemas");
    if dir.is_dir() {
        return Some(dir);
    }
    let note = format!("SKIPPED: {test}: official schemas are not here\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
    None
}

impl Official {
    fn read(path: &Path) -> Self {
        let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let defs = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
        Self { document, defs }
    }

    pub(crate) fn definitions(&self) -> &serde_json::Map<String, Value> {
        self.document[self.defs].as_object().unwrap()
    }

    pub(crate) fn definition(&self, name: &str) -> Option<&Value> {
        self.definitions().get(name)
    }

    /// Methods of the definitions in a union.
    pub(crate) fn methods_of(&self, union: &str) -> Vec<&str> {
        let Some(listed) =
            self.definition(union).and_then(|definition| definition["anyOf"].as_array())
        else {
            // There is none, or it is a union of one, which is written out.
            return self.method(union).into_iter().collect();
        };
        let names =
            listed.iter().map(|entry| entry["$ref"].as_str().unwrap().rsplit('/').next().unwrap());
        names.map(|name| self.method(name).unwrap()).collect()
    }

    /// The method that a definition is about.
    pub(crate) fn method(&self, definition: &str) -> Option<&str> {
        self.definition(definition)?["properties"]["method"]["const"].as_str()
    }

    /// Every definition that is about a method, with that method.
    pub(crate) fn methods(&self) -> impl Iterator<Item = (&str, &str)> {
        self.definitions().keys().filter_map(|name| Some((name.as_str(), self.method(name)?)))
    }

    /// The definition that is about `method`.
    pub(crate) fn of_method(&self, method: &str) -> Option<&str> {
        self.methods().find(|&(_, name)| name == method).map(|(definition, _)| definition)
    }

    /// Every reason why `value` is not what `definition` says.
    pub(crate) fn violations(&self, definition: &str, value: &Value) -> Vec<String> {
        let mut schema = self.document.clone();
        schema["$ref"] = json!(format!("#/{}/{definition}", self.defs));
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator
            .iter_errors(value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect()
    }
}

fn close(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(close),
        Value::Object(members) => {
            let object = members.get("type") == Some(&json!("object"));
            let listed = members.get("properties").is_some_and(Value::is_object);
            if object && listed && !members.contains_key("additionalProperties") {
                members.insert("additionalProperties".to_owned(), json!(false));
            }
            members.values_mut().for_each(close);
        }
        _ => {}
    }
}
