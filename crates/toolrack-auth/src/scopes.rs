//! Which scopes to ask for.
//!
//! **Invariant:** nothing is ever asked for that neither the user, nor the server, nor what was held before names,
//! except `offline_access`, and that only where the authorization server lists it.

/// The scope that makes some authorization servers give refresh tokens.
const OFFLINE: &str = "offline_access";

/// Everybody who has a say in the scopes of an authorization.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Voices<'a> {
    /// What the user has set.
    pub(crate) settings: Option<&'a [String]>,
    /// What the server's challenge names.
    pub(crate) challenge: Option<&'a [String]>,
    /// What the server's description lists.
    pub(crate) resource: Option<&'a [String]>,
    /// What the authorization server lists.
    pub(crate) issuer: Option<&'a [String]>,
    /// What was asked for or granted before, with the same authorization server for the same resource.
    pub(crate) before: &'a [String],
}

/// The scopes of an authorization request, in a stable order. Empty means: leave the parameter out.
///
/// Protocol facts §20.2 step 8: the challenge, else all that the resource lists, else none. What was held before is
/// kept, because a new token replaces the old one whole (§20.4).
pub(crate) fn select(voices: Voices<'_>) -> Vec<String> {
    let first = match voices.before {
        // The resource's list is for those who have nothing to go by; after that it would only widen.
        [] => voices.settings.or(voices.challenge).or(voices.resource).unwrap_or_default(),
        _ => voices.challenge.unwrap_or_default(),
    };
    let mut scopes = union(voices.before, first);
    let offered = voices.issuer.is_some_and(|it| it.iter().any(|scope| scope == OFFLINE));
    if offered && !scopes.is_empty() {
        scopes = union(&scopes, &[OFFLINE.to_owned()]);
    }
    if voices.issuer.is_some() && !offered && voices.settings.is_none() {
        scopes.retain(|scope| scope != OFFLINE);
    }
    scopes
}

/// Everything in either, without repetition, in order of appearance.
pub(crate) fn union(one: &[String], other: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in one.iter().chain(other) {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}

/// The parameter `scope`, if there is anything to ask for.
pub(crate) fn parameter(scopes: &[String]) -> Option<String> {
    if scopes.is_empty() { None } else { Some(scopes.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// `-` means that nobody says anything; the order is settings, challenge, resource, issuer, before.
    #[track_caller]
    fn check(voices: [&str; 5], expected: &str) {
        let lists = voices.map(|it| if it == "-" { None } else { Some(list(it)) });
        let [settings, challenge, resource, issuer, before] = &lists;
        let selected = select(Voices {
            settings: settings.as_deref(),
            challenge: challenge.as_deref(),
            resource: resource.as_deref(),
            issuer: issuer.as_deref(),
            before: before.as_deref().unwrap_or_default(),
        });
        assert_eq!(selected, list(expected));
    }

    #[test]
    fn the_nearest_voice_is_heard() {
        check(["-", "-", "-", "-", "-"], "");
        check(["-", "-", "r1 r2", "-", "-"], "r1 r2");
        check(["-", "c", "r1 r2", "-", "-"], "c");
        check(["s", "c", "r1 r2", "-", "-"], "s");
    }

    #[test]
    fn what_was_held_is_kept_and_the_decoy_is_not_taken() {
        check(["-", "write", "r1 r2", "-", "basic"], "basic write");
        check(["-", "basic", "r1", "-", "basic extra"], "basic extra");
        check(["-", "-", "r1", "-", "basic"], "basic");
        check(["s", "write", "-", "-", "s"], "s write");
    }

    #[test]
    fn offline_access_needs_the_issuers_word() {
        check(["-", "c", "-", "c offline_access", "-"], "c offline_access");
        check(["-", "-", "-", "offline_access", "-"], "");
        check(["-", "c", "-", "c", "-"], "c");
        check(["-", "-", "r offline_access", "r", "-"], "r");
        check(["-", "c offline_access", "-", "-", "-"], "c offline_access");
        check(["s offline_access", "-", "-", "s", "-"], "s offline_access");
    }

    #[test]
    fn nothing_to_ask_for_is_no_parameter() {
        assert_eq!(parameter(&[]), None);
        assert_eq!(parameter(&list("a b")), Some("a b".to_owned()));
    }
}
