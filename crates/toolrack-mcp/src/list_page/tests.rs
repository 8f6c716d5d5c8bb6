//! List pages, valid and malformed.

use super::*;
use crate::tool::Tool;

#[track_caller]
fn check(json: &str, names: &[&str], next: Option<&str>, skipped: &[(usize, Option<&str>)]) {
    let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();
    let read: Vec<_> = page.items.iter().map(|tool| tool.name.as_str()).collect();
    let passed: Vec<_> =
        page.skipped.iter().map(|entry| (entry.index, entry.name.as_deref())).collect();
    assert_eq!((&*read, page.next_cursor.as_deref(), &*passed), (names, next, skipped), "{json}");
}

#[test]
fn empty_cursor_is_not_the_end() {
    let tool = r#"{"name":"a","inputSchema":{}}"#;
    check(&format!(r#"{{"tools":[{tool}]}}"#), &["a"], None, &[]);
    check(&format!(r#"{{"tools":[{tool}],"nextCursor":null}}"#), &["a"], None, &[]);
    check(&format!(r#"{{"tools":[{tool}],"nextCursor":""}}"#), &["a"], Some(""), &[]);
    check(&format!(r#"{{"nextCursor":"é","tools":[{tool}]}}"#), &["a"], Some("é"), &[]);
}

#[test]
fn unreadable_cursor_ends_the_list() {
    check(
        r#"{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":5}"#,
        &["a"],
        None,
        &[(1, None)],
    );
}

#[test]
fn malformed_entries_are_skipped_and_named() {
    check(
        r#"{"tools":[{"name":"a","inputSchema":{}},7,{"name":"b","inputSchema":[]},null,{"inputSchema":{}},
            {"name":"c","inputSchema":""},{"name":5,"inputSchema":{}},
            {"name":"z","inputSchema":{},"more":[1]}],"nextCursor":"n"}"#,
        &["a", "z"],
        Some("n"),
        &[(1, None), (2, Some("b")), (3, None), (4, None), (5, Some("c")), (6, None)],
    );
}

#[test]
fn tool_without_schema_takes_any_arguments() {
    let list = br#"{"tools":[{"name":"a"},{"name":"b","inputSchema":null}]}"#;
    let page: ListPage<Tool> = ListPage::decode(list).unwrap();
    let schemas = page.items.iter().map(|tool| tool.input_schema.get());
    assert_eq!(schemas.collect::<Vec<_>>(), [r#"{"type":"object"}"#; 2]);
}

#[test]
fn null_list_is_empty_and_missing_list_fails() {
    check(r#"{"tools":null}"#, &[], None, &[]);
    check(r#"{"tools":[]}"#, &[], None, &[]);
    let missing = ListPage::<Tool>::decode(br#"{"resources":[]}"#).unwrap_err();
    assert!(matches!(missing, DecodeError::Missing { member: "tools" }));
    for unsound in ["", "[]", "null", r#"{"tools":{}}"#, r#"{"tools":[}"#, r#"{"tools":[]} x"#] {
        let failure = ListPage::<Tool>::decode(unsound.as_bytes()).unwrap_err();
        assert!(matches!(failure, DecodeError::Shape(_)), "{unsound}");
    }
}

#[test]
fn unclear_cache_hints_are_stale() {
    let check = |hint: &str, ttl: u64| {
        let json = format!(r#"{{"tools":[]{hint},"cacheScope":"public","resultType":"complete"}}"#);
        let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();
        assert_eq!(page.ttl, Duration::from_millis(ttl), "{hint}");
    };
    check(r#","ttlMs":1500"#, 1500);
    check(r#","ttlMs": 0 "#, 0);
    check("", 0);
    for malformed in ["null", "-1", "\"5\"", "1.5", "99999999999999999999"] {
        check(&format!(r#","ttlMs":{malformed}"#), 0);
    }
}

#[test]
fn too_deep_entry_is_skipped() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, is_read) in [(10, true), (DEEPEST - 2, true), (DEEPEST, false), (100_000, false)] {
        let deep = format!(r#"{{"name":"b","inputSchema":{{"x":{}}}}}"#, nested(depth));
        let json = format!(r#"{{"tools":[{{"name":"a","inputSchema":{{}}}},{deep}]}}"#);
        if is_read {
            check(&json, &["a", "b"], None, &[]);
        } else {
            check(&json, &["a"], None, &[(1, Some("b"))]);
            let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();
            assert_eq!(page.skipped[0].reason, "nested deeper than 120 levels");
        }
    }
}

#[test]
fn tool_with_unusable_schema_is_skipped() {
    let json =
        r#"{"tools":[{"name":"a","inputSchema":{"type":"string"}},{"name":"b","inputSchema":{}}]}"#;
    check(json, &["b"], None, &[(0, Some("a"))]);
    let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();
    let reason = &page.skipped[0].reason;
    assert!(reason.starts_with("inputSchema is not of the type `object`"), "{reason}");
}

/// A description takes more memory than a short entry: 32 MiB of numbers would become gigabytes.
#[test]
fn malformed_entries_beyond_the_limit_are_counted() {
    let entries = vec!["7"; MAX_DESCRIBED + 50].join(",");
    let json = format!(r#"{{"tools":[{entries}]}}"#);
    let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();
    assert_eq!((page.skipped.len(), page.n_bytes), (MAX_DESCRIBED + 1, json.len()));
    let last = page.skipped.last().unwrap();
    assert_eq!((last.index, &*last.reason), (MAX_DESCRIBED + 50, "50 more entries are malformed"));
    assert_eq!(n_skipped(&page.skipped), MAX_DESCRIBED + 50);
}

/// The fast path gives the same entries as the closer look.
#[test]
fn sound_entries_are_read_as_lenient_ones() {
    let tools = [
        r#"{"name":"a"}"#,
        r#"{"name":"a","title":null,"description":null,"inputSchema":null,"outputSchema":null,
            "annotations":null,"icons":null,"execution":null,"_meta":null}"#,
        r#"{"name":"\u00e9\"","title":"t","description":"d\n","inputSchema":{ "type":"object" },"outputSchema":{"a":1},
            "annotations":{"title":"x","readOnlyHint":true,"destructiveHint":null,"openWorldHint":false},
            "icons":[{"src":"s"}],"execution":{"taskSupport":"optional"},"_meta":{"a":[1]},"unknown":[{}]}"#,
        r#"{"name":"a","outputSchema":5,"icons":[5],"execution":{"taskSupport":1},"_meta":[]}"#,
        r#"{"name":"a","inputSchema":{"properties":{"a":true},"required":["a"],"additionalProperties":false}}"#,
    ];
    for tool in tools {
        let json = format!(r#"{{"tools":[{tool}]}}"#);
        let sheet: Sheet<'_, Tool, SoundEntries<Tool>> = serde_json::from_str(&json).unwrap();
        let raw = RawValue::from_string(tool.to_owned()).unwrap();
        let (lenient, skipped) = read_lenient::<Tool>(&[&*raw]);
        let written = |tools: &[Tool]| serde_json::to_string(tools).unwrap();
        assert_eq!(written(&sheet.entries.unwrap().unwrap().0), written(&lenient));
        assert!(skipped.is_empty(), "{skipped:?}");
    }
}
