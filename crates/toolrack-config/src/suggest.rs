//! Did-you-mean suggestions: known names that are similar to a mistyped one.

/// The comparison costs the product of the lengths, and a longer name is not a typo.
const MAX_NAME_BYTES: usize = 128;
/// Sum of those products for one name: less than a millisecond. With more candidates, only parts of names are found.
const MAX_WORK: usize = 1 << 16;
/// Sum of the lengths of the candidates that are looked at. Further ones are not suggested.
const MAX_SCANNED_BYTES: usize = 1 << 20;
const MAX_SUGGESTIONS: usize = 3;

/// The candidates most similar to `name`, best first. Case, `-` and `_` do not count.
pub fn similar_names<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let name = normalize(name);
    // A third of the name may differ, at most three letters.
    let n_chars = name.chars().count();
    let max_distance = (n_chars / 3).clamp(1, 3);
    let (mut work, mut scanned) = (0, 0);
    // Shared by all candidates: a server may have thousands of tools.
    let mut known = String::new();
    let mut similar: Vec<(usize, &str)> = candidates
        .into_iter()
        .take_while(|candidate| {
            scanned += candidate.len();
            scanned <= MAX_SCANNED_BYTES
        })
        .filter(|candidate| candidate.len() <= MAX_NAME_BYTES)
        .filter_map(|candidate| {
            known.clear();
            known.extend(candidate.chars().map(normalized));
            let n_more = known.chars().count().abs_diff(n_chars);
            // A part of a name is similar to it, however much is missing.
            if name.len() >= 3 && known.contains(&name) {
                return Some((n_more, candidate));
            }
            // The distance is at least the difference of the lengths.
            if n_more > max_distance || work > MAX_WORK {
                return None;
            }
            work += name.len() * known.len();
            let distance = strsim::damerau_levenshtein(&name, &known);
            (distance <= max_distance).then_some((distance, candidate))
        })
        .collect();
    similar.sort_unstable();
    similar.dedup();
    similar.into_iter().take(MAX_SUGGESTIONS).map(|(_, candidate)| candidate).collect()
}

/// The most similar candidate.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar_names(name, candidates).into_iter().next()
}

/// The suggestions as a clause that follows a message, or nothing.
pub fn did_you_mean(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; did you mean `{}`?", names.join("` or `")),
    }
}

fn normalize(name: &str) -> String {
    name.chars().map(normalized).collect()
}

/// Letters beyond ASCII are compared as they are.
fn normalized(letter: char) -> char {
    match letter {
        '-' => '_',
        letter => letter.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        let known = ["limit", "list_issues", "query", "search_issues"];
        assert_eq!(did_you_mean(&similar_names(name, known)), expected);
    }

    #[test]
    fn typos_and_parts_are_suggested() {
        check("lmit", "; did you mean `limit`?");
        check("QUERY", "; did you mean `query`?");
        check("issues", "; did you mean `list_issues` or `search_issues`?");
        check("list-isues", "; did you mean `list_issues`?");
        check("zzz", "");
        check("", "");
        check(&"issues".repeat(100), "");
    }

    /// A server can have thousands of tools with long names, and a client can ask for any name.
    #[test]
    fn work_is_bounded() {
        let long = |n: usize| format!("{n:05}{}", "x".repeat(120));
        let known: Vec<String> = (0..8_000).map(long).collect();
        let (last, typo) = (long(7_999), format!("{}y", long(7_999)));
        assert_eq!(similar_names(&typo, [last.as_str()]), [last.as_str()]);
        // It comes after more comparisons than are made.
        assert!(similar_names(&typo, known.iter().map(String::as_str)).is_empty());
        // A part needs no comparison.
        assert_eq!(similar_names("07999", known.iter().map(String::as_str)), [last.as_str()]);
        // The end of a longer list is not looked at.
        let longer: Vec<String> = (0..9_000).map(long).collect();
        assert!(similar_names("08999", longer.iter().map(String::as_str)).is_empty());
    }

    #[track_caller]
    fn check_key(word: &str, expected: Option<&str>) {
        assert_eq!(suggest(word, ["command", "url", "headers", "max_timeout"]), expected);
    }

    #[test]
    fn similar_words_are_suggested() {
        check_key("comand", Some("command"));
        check_key("Headers", Some("headers"));
        check_key("max-timeout", Some("max_timeout"));
        check_key("urll", Some("url"));
        check_key("routing", None);
        check_key("mcp", None);
    }
}
