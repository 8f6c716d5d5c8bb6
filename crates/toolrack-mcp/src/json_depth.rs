//! How deeply JSON is nested, found out without nesting ourselves.
//!
//! **Invariant:** one pass, no recursion, no memory: what a server wrote can be of any depth.

/// How deep an entry of a list may be. A whole message with it stays below 128, which most readers of JSON take at
/// most.
pub(crate) const DEEPEST: usize = 120;

/// How many brackets are open at most. What is no JSON has some depth too.
pub(crate) fn depth(json: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let (mut is_within, mut is_escaped) = (false, false);
    for byte in json {
        if is_within {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_within = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_within = true,
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_counted_and_those_in_texts_are_not() {
        let check =
            |json: &str, expected: usize| assert_eq!(depth(json.as_bytes()), expected, "{json}");
        check("", 0);
        check("5", 0);
        check(r#"{"a":[1,{}],"b":[]}"#, 3);
        check(r#"["[[[", "\"[[[", "\\", []]"#, 2);
        check("]]]][", 1);
        assert_eq!(depth("[".repeat(1_000_000).as_bytes()), 1_000_000);
    }
}
