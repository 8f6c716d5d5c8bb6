//! Patterns over names: `*` stands for any run of characters, `?` for one, everything else for itself.
//!
//! A library would bring paths, braces and classes, none of which a tool's name needs.

/// Whether `text` is one of those that `pattern` stands for.
///
/// Goes back only to the last `*`, so the time grows with the product of the lengths at worst.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let mut rest = text.clone();
        let mut following = pattern.clone();
        match (following.next(), rest.next()) {
            (Some('*'), _) => {
                pattern = following;
                last_star = Some((pattern.clone(), text.clone()));
                continue;
            }
            (Some('?'), Some(_)) => {
                (pattern, text) = (following, rest);
                continue;
            }
            (Some(wanted), Some(found)) if wanted == found => {
                (pattern, text) = (following, rest);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        // What the last star stands for grows by one character, and everything behind it is tried again.
        let Some((after_star, mut start)) = last_star.take() else { return false };
        if start.next().is_none() {
            return false;
        }
        (pattern, text) = (after_star.clone(), start.clone());
        last_star = Some((after_star, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        for text in matching {
            assert!(matches(pattern, text), "`{pattern}` should match `{text}`");
        }
        for text in others {
            assert!(!matches(pattern, text), "`{pattern}` should not match `{text}`");
        }
    }

    #[test]
    fn stars_and_question_marks_stand_for_characters() {
        check("read", &["read"], &["", "rea", "reads", "Read"]);
        check("*", &["", "a", "anything"], &[]);
        check("write_*", &["write_", "write_file"], &["write", "rewrite_file"]);
        check("*_file", &["read_file", "_file", "a_file_file"], &["file", "read_files"]);
        check("a*b*c", &["abc", "a-b-b-c", "aXbYc"], &["acb", "ab"]);
        check("get-?", &["get-x", "get-ü"], &["get-", "get-xy"]);
        check("*?", &["a", "ab"], &[""]);
        check("", &[""], &["a"]);
        check("[a]", &["[a]"], &["a"]);
    }

    /// The plainest definition, which takes its time.
    fn slowly(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => (0..=text.len()).any(|cut| slowly(rest, &text[cut..])),
            (Some(('?', rest)), Some((_, text))) => slowly(rest, text),
            (Some((wanted, rest)), Some((found, text))) => wanted == found && slowly(rest, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_plain_definition(pattern in "[ab*?]{0,7}", text in "[ab]{0,8}") {
            let letters = |it: &str| it.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), slowly(&letters(&pattern), &letters(&text)));
        }
    }
}
