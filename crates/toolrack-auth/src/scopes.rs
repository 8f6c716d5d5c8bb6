//! Which scopes to ask for.
//!
//! **Invariant:** nothing is ever asked for that neither the user, nor the server, nor what was held before names,
//! except `offline_access`, and that only where the authorization server lists it.

/// The scope that makes some authorization servers give refresh tokens.
const OFFLINE_ACCESS: &str = "offline_access";

/// Everybody who has a say in the scopes of an authorization.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScopeInputs<'a> {
    /// What the user has set.
    pub(crate) settings: Option<&'a [String]>,
    /// What the server's challenge names.
    pub(crate) challenge: Option<&'a [String]>,
    /// What the server's description lists.
    pub(crate) resource: Option<&'a [String]>,
    /// What the authorization server lists.
    pub(crate) issuer: Option<&'a [String]>,
    /// What was asked for or granted before, with the same authorization server for the same resource.
    pub(crate) previous: &'a [String],
}

/// The scopes of an authorization request, in a stable order. Empty means: leave the parameter out.
///
/// Protocol facts §20.2 step 8: the challenge, else all that the resource lists, else none. What was held before is
/// kept, because a new token replaces the old one whole (§20.4).
pub(crate) fn select_scopes(inputs: ScopeInputs<'_>) -> Vec<String> {
    let first = match inputs.previous {
        // The resource's list is for those who have nothing to go by; after that it would only widen.
        [] => inputs.settings.or(inputs.challenge).or(inputs.resource).unwrap_or_default(),
        _ => inputs.challenge.unwrap_or_default(),
    };
    let mut scopes = union_scopes(inputs.previous, first);
    let has_offline_access =
        inputs.issuer.is_some_and(|it| it.iter().any(|scope| scope == OFFLINE_ACCESS));
    if has_offline_access && !scopes.is_empty() {
        scopes = union_scopes(&scopes, &[OFFLINE_ACCESS.to_owned()]);
    }
    if inputs.issuer.is_some() && !has_offline_access && inputs.settings.is_none() {
        scopes.retain(|scope| scope != OFFLINE_ACCESS);
    }
    scopes
}

/// Everything in either, without repetition, in order of appearance.
pub(crate) fn union_scopes(one: &[String], other: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in one.iter().chain(other) {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}

/// The parameter `scope`, if there is anything to ask for.
pub(crate) fn scope_param(scopes: &[String]) -> Option<String> {
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
    fn check(inputs: [&str; 5], expected: &str) {
        let lists = inputs.map(|it| if it == "-" { None } else { Some(list(it)) });
        let [settings, challenge, resource, issuer, previous] = &lists;
        let selected = select_scopes(ScopeInputs {
            settings: settings.as_deref(),
            challenge: challenge.as_deref(),
            resource: resource.as_deref(),
            issuer: issuer.as_deref(),
            previous: previous.as_deref().unwrap_or_default(),
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
        assert_eq!(scope_param(&[]), None);
        assert_eq!(scope_param(&list("a b")), Some("a b".to_owned()));
    }
}
