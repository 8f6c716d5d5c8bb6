//! The parts of JSON Schema that the CLI needs for typed arguments.
//!
//! **Invariant:** no schema is rejected. Unsupported keywords allow any value; the server
//! decides.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Maximum depth of references and alternatives, which may be cyclic.
const MAX_DEPTH: usize = 16;

/// A position in a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema<'a> {
    root: &'a Value,
    node: &'a Value,
}

/// JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JsonType {
    String,
    Boolean,
    Integer,
    Number,
    Array,
    Object,
    Null,
}

impl<'a> Schema<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self { root, node: root }
    }

    /// All subschemas that apply here: the node itself, its `$ref` and its `allOf`. Alternatives
    /// are separate.
    fn layers(self) -> Vec<&'a Map<String, Value>> {
        let mut layers = Vec::new();
        self.collect_layers(&mut layers, 0);
        layers
    }

    fn collect_layers(self, layers: &mut Vec<&'a Map<String, Value>>, depth: usize) {
        // A schema may refer to itself.
        let Some(members) = self.node.as_object().filter(|_| depth < MAX_DEPTH) else { return };
        layers.push(members);
        // Only within the schema: references to the network are never followed.
        let reference = members.get("$ref").and_then(Value::as_str);
        let referred =
            reference.and_then(|reference| self.root.pointer(reference.strip_prefix('#')?));
        let parts = members.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for node in referred.into_iter().chain(parts) {
            Self { node, ..self }.collect_layers(layers, depth + 1);
        }
    }

    fn member(self, name: &str) -> Option<&'a Value> {
        self.layers().into_iter().find_map(|layer| layer.get(name))
    }

    fn alternatives(self) -> Vec<Self> {
        let lists = ["anyOf", "oneOf"].into_iter().filter_map(|key| self.member(key)?.as_array());
        lists.flatten().map(|node| Self { node, ..self }).collect()
    }

    /// The layers, and those of the alternatives: an optional object is often one of two.
    fn all_layers(self) -> impl Iterator<Item = &'a Map<String, Value>> {
        let alternatives = self.alternatives().into_iter().flat_map(Self::layers);
        self.layers().into_iter().chain(alternatives)
    }

    /// The allowed types. Empty means any.
    pub(crate) fn types(self) -> Vec<JsonType> {
        let mut types = self.types_within(0);
        types.sort_unstable();
        types.dedup();
        types
    }

    fn types_within(self, depth: usize) -> Vec<JsonType> {
        if let Some(named) = self.member("type") {
            let words =
                named.as_array().map_or_else(|| vec![named], |names| names.iter().collect());
            return words.into_iter().filter_map(|name| JsonType::deserialize(name).ok()).collect();
        }
        if let Some(choices) = self.own_allowed_values() {
            return choices.into_iter().map(JsonType::from_value).collect();
        }
        let alternatives = self.alternatives();
        if !alternatives.is_empty() && depth < MAX_DEPTH {
            let types: Vec<Vec<JsonType>> = alternatives
                .into_iter()
                .map(|alternative| alternative.types_within(depth + 1))
                .collect();
            // One alternative that allows anything makes the whole allow anything.
            let is_open = types.iter().any(Vec::is_empty);
            return if is_open { Vec::new() } else { types.concat() };
        }
        match (self.member("properties"), self.member("items")) {
            (Some(_), _) => vec![JsonType::Object],
            (None, Some(_)) => vec![JsonType::Array],
            (None, None) => Vec::new(),
        }
    }

    /// The allowed values, if they are enumerated.
    pub(crate) fn allowed_values(self) -> Option<Vec<&'a Value>> {
        if let Some(choices) = self.own_allowed_values() {
            return Some(choices);
        }
        let alternatives = self.alternatives();
        if alternatives.is_empty() {
            return None;
        }
        let mut all = Vec::new();
        for alternative in alternatives {
            match alternative.own_allowed_values() {
                Some(choices) => all.extend(choices),
                None if alternative.types() == [JsonType::Null] => all.push(&Value::Null),
                None => return None,
            }
        }
        Some(all)
    }

    fn own_allowed_values(self) -> Option<Vec<&'a Value>> {
        let listed =
            self.member("enum").and_then(Value::as_array).map(|values| values.iter().collect());
        listed.or_else(|| self.member("const").map(|value| vec![value]))
    }

    /// The schema of a property.
    pub(crate) fn property(self, name: &str) -> Option<Self> {
        let node = self.all_layers().find_map(|layer| layer.get("properties")?.get(name))?;
        Some(Self { node, ..self })
    }

    /// Names of all properties.
    pub(crate) fn property_names(self) -> Vec<&'a str> {
        let maps = self.all_layers().filter_map(|layer| layer.get("properties")?.as_object());
        let mut names: Vec<&str> =
            maps.flat_map(|properties| properties.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Names of the required properties.
    pub(crate) fn required(self) -> Vec<&'a str> {
        let lists = self.layers().into_iter().filter_map(|layer| layer.get("required")?.as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    }

    /// Whether properties that the schema does not list are allowed. If it lists some, they are
    /// not, unless it says so.
    pub(crate) fn allows_extra_properties(self) -> bool {
        let is_open = |layer: &Map<String, Value>| {
            let extra = layer.get("additionalProperties");
            layer.contains_key("patternProperties")
                || extra.is_some_and(|extra| *extra != Value::Bool(false))
        };
        // A schema without any properties says nothing, so every argument is passed on.
        let is_unspecified = self.property_names().is_empty()
            && self.member("additionalProperties").is_none()
            && self.node.get("properties").is_none();
        is_unspecified || self.layers().into_iter().any(is_open)
    }

    /// The schema of list items.
    pub(crate) fn items(self) -> Option<Self> {
        let node = self.all_layers().find_map(|layer| layer.get("items"))?;
        Some(Self { node, ..self })
    }

    pub(crate) fn description(self) -> Option<&'a str> {
        self.member("description").and_then(Value::as_str)
    }

    /// The allowed values or types in short: `integer`, `"a" | "b"`, `string | null`.
    pub(crate) fn describe(self) -> String {
        if let Some(choices) = self.allowed_values() {
            let choices: Vec<String> = choices.into_iter().map(Value::to_string).collect();
            return choices.join(" | ");
        }
        let items = self.items().map(Self::types).unwrap_or_default();
        let words = self.types().into_iter().map(|json_type| match (json_type, items.as_slice()) {
            (JsonType::Array, [item]) => format!("{}[]", item.as_str()),
            _ => json_type.as_str().to_owned(),
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "any".to_owned() } else { words.join(" | ") }
    }
}

impl JsonType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Array => "array",
            Self::Object => "object",
            Self::Null => "null",
        }
    }

    pub(crate) fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// Whether a value of this type is valid where `wanted` is required.
    pub(crate) fn satisfies(self, wanted: Self) -> bool {
        self == wanted || matches!((self, wanted), (Self::Integer, Self::Number))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, words: &str) {
        assert_eq!(Schema::new(&schema).describe(), words, "{schema}");
    }

    #[test]
    fn schemas_are_described() {
        check(json!({}), "any");
        check(json!(true), "any");
        check(json!({"type": "integer"}), "integer");
        check(json!({"type": ["null", "string"]}), "string | null");
        check(json!({"enum": ["a", 1, null]}), r#""a" | 1 | null"#);
        check(json!({"type": "array", "items": {"type": "number"}}), "number[]");
        check(json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), "integer | null");
        check(json!({"anyOf": [{"const": "x"}, {"type": "null"}]}), r#""x" | null"#);
        check(json!({"anyOf": [{"type": "integer"}, {}]}), "any");
        check(json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}}), "boolean");
        check(json!({"$ref": "#"}), "any");
        check(json!({"allOf": [{"type": "string"}]}), "string");
        check(json!({"properties": {}}), "object");
    }

    #[derive(PartialEq)]
    enum Extra {
        Allowed,
        Rejected,
    }

    #[track_caller]
    fn check_others(schema: Value, expected: Extra) {
        let is_allowed = Schema::new(&schema).allows_extra_properties();
        assert_eq!(is_allowed, expected == Extra::Allowed, "{schema}");
    }

    #[test]
    fn unlisted_properties_are_rejected_unless_allowed() {
        check_others(json!({}), Extra::Allowed);
        check_others(json!({"type": "object"}), Extra::Allowed);
        check_others(json!({"properties": {}}), Extra::Rejected);
        check_others(json!({"properties": {"a": {}}}), Extra::Rejected);
        check_others(
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            Extra::Allowed,
        );
        check_others(json!({"type": "object", "additionalProperties": false}), Extra::Rejected);
    }
}
