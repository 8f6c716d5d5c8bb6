//! JSON Merge Patch (RFC 7396).
//!
//! In a file of its own, because its fuzz program includes it without the rest of the daemon.

use serde_json::{Map, Value};

/// Applies a JSON Merge Patch (RFC 7396).
pub(crate) fn merge_patch(target: Value, patch: Value) -> Value {
    let Value::Object(changes) = patch else { return patch };
    let mut members = if let Value::Object(members) = target { members } else { Map::new() };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(&name);
            continue;
        }
        let current = members.remove(&name).unwrap_or_default();
        members.insert(name, merge_patch(current, change));
    }
    Value::Object(members)
}

/// Fuzz target: the patch of one line is applied to the target of the line before.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut next = || serde_json::from_slice::<Value>(lines.next().unwrap_or_default()).ok();
    let (Some(target), Some(patch)) = (next(), next()) else { return };
    let patched = merge_patch(target.clone(), patch.clone());
    assert_eq!(merge_patch(patched.clone(), patch.clone()), patched, "twice");
    let Value::Object(changes) = &patch else { return assert_eq!(patched, patch) };
    assert!(patched.is_object(), "{patched}");
    let Value::Object(members) = &patched else { return };
    for (name, change) in changes {
        match change {
            Value::Null => assert!(!members.contains_key(name)),
            Value::Object(_) => {
                let before = target.get(name).cloned().unwrap_or_default();
                assert_eq!(members.get(name), Some(&merge_patch(before, change.clone())));
            }
            other => assert_eq!(members.get(name), Some(other)),
        }
    }
    let kept = target.as_object().into_iter().flatten();
    for (name, value) in kept.filter(|(name, _)| !changes.contains_key(*name)) {
        assert_eq!(members.get(name), Some(value));
    }
    let is_known = |name: &&String| changes.contains_key(*name) || target.get(*name).is_some();
    assert!(members.keys().all(|name| is_known(&name)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fuzz_target_holds() {
        toolrack_fuzz::check_targets(&[("merge_patch", fuzz)]);
    }

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn rfc_7396_examples() {
        let check = |target: Value, patch: Value, expected: Value| {
            assert_eq!(merge_patch(target.clone(), patch.clone()), expected, "{target} {patch}");
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
