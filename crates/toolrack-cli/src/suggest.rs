//! Did-you-mean suggestions for names typed on the command line.

/// Minimum similarity, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.65;
const MAX_SUGGESTIONS: usize = 3;

/// The candidates most similar to `name`, best first.
pub(crate) fn similar_names<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let mut close: Vec<(f64, &str)> = candidates
        .map(|candidate| (similarity(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
        .collect();
    close.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(two.1)));
    close.dedup_by(|one, two| one.1 == two.1);
    close.into_iter().take(MAX_SUGGESTIONS).map(|(_, candidate)| candidate).collect()
}

/// A substring counts as a near match, however short it is.
fn similarity(name: &str, candidate: &str) -> f64 {
    let score = strsim::normalized_damerau_levenshtein(name, candidate);
    if name.len() >= 3 && candidate.contains(name) { score.max(0.9) } else { score }
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
    fn typos_and_substrings_are_suggested() {
        check("lmit", "; did you mean `limit`?");
        check("QUERY", "; did you mean `query`?");
        check("issues", "; did you mean `list_issues` or `search_issues`?");
        check("zzz", "");
        check("", "");
    }
}
