//! Ways into the caller's own document, such as `env_vars.TOKEN.secret_ref`, and words that were nearly right.

/// One more step. A name that would be mistaken for several is quoted.
pub(crate) fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && !key.contains(['.', '[', ']', '"', ' ', '\n']);
    match (path, plain) {
        ("", true) => key.to_owned(),
        ("", false) => format!("{key:?}"),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
}

/// The nearest of some words, if it is near enough to have been meant.
pub(crate) fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    // Comparing costs the product of the lengths, and no key of ours is that long.
    if word.len() > 40 {
        return None;
    }
    let most = (word.chars().count() / 3).clamp(1, 3);
    let distance = |it: &str| strsim::damerau_levenshtein(&word.to_lowercase(), it);
    known.iter().copied().filter(|it| distance(it) <= most).min_by_key(|it| distance(it))
}
