//! JSON Merge Patch (RFC 7396): a document that says what is to be different.

use serde_json::{Map, Value};

/// The document with the patch applied.
pub(crate) fn merge(target: Value, patch: Value) -> Value {
    let Value::Object(changes) = patch else { return patch };
    let mut members = match target {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(&name);
            continue;
        }
        let before = members.remove(&name).unwrap_or_default();
        members.insert(name, merge(before, change));
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        let check = |target: Value, patch: Value, expected: Value| {
            assert_eq!(merge(target.clone(), patch.clone()), expected, "{target} {patch}");
        };
        check(json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"}));
        check(json!({"a":"b"}), json!({"a":null}), json!({}));
        check(json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"}));
        check(json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]}));
        check(json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}}));
        check(json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a":"b"}), json!(["c"]), json!(["c"]));
        check(json!({"a":"foo"}), json!(null), json!(null));
        check(json!({"a":"foo"}), json!("bar"), json!("bar"));
        check(json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1}));
        check(json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"}));
        check(json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}}));
    }
}
