//! Did-you-mean suggestions.

/// Minimum similarity, from 0 to 1.
const LIKENESS: f64 = 0.65;
const MOST: usize = 3;

/// The candidates most similar to `name`, best first.
pub(crate) fn similar_names<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let mut close: Vec<(f64, &str)> = candidates
        .map(|candidate| (likeness(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > LIKENESS)
        .collect();
    close.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(two.1)));
    close.dedup_by(|one, two| one.1 == two.1);
    close.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// A substring counts as a near match, whatever its length.
fn likeness(name: &str, candidate: &str) -> f64 {
    let alike = strsim::normalized_damerau_levenshtein(name, candidate);
    if name.len() >= 3 && candidate.contains(name) { alike.max(0.9) } else { alike }
}

/// The suggestions as a clause after a semicolon.
pub(crate) fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        names => format!("; did you mean `{}`?", names.join("` or `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        let known = ["limit", "list_issues", "query", "search_issues"];
        assert_eq!(did_you_mean(&similar_names(name, known.into_iter())), expected);
    }

    #[test]
    fn names_are_found_by_typing_errors_and_by_parts() {
        check("lmit", "; did you mean `limit`?");
        check("QUERY", "; did you mean `query`?");
        check("issues", "; did you mean `list_issues` or `search_issues`?");
        check("zzz", "");
        check("", "");
    }
}
