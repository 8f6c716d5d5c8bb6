//! Did-you-mean suggestions: known names that are similar to a mistyped one.

/// The comparison costs the product of the lengths, and a longer name is not a typo.
const MAX_NAME_BYTES: usize = 128;
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
    let max_distance = (name.chars().count() / 3).clamp(1, 3);
    let mut similar: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= MAX_NAME_BYTES)
        .filter_map(|candidate| {
            let known = normalize(candidate);
            let distance = strsim::damerau_levenshtein(&name, &known);
            // A part of a name is similar to it, however much is missing.
            let is_part = name.len() >= 3 && known.contains(&name);
            (is_part || distance <= max_distance).then_some((distance, candidate))
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
    name.to_lowercase().replace('-', "_")
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
