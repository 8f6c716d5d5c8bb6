//! Whether what is kept can be used as it is, has to be renewed, or helps nobody.

use std::time::Duration;

use toolrack_transport::Authorization;

use crate::stored_credentials::StoredGrant;

/// What to do with the token that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenAction {
    /// There is none.
    None,
    /// Use it: it is fresh, and nobody has refused it.
    Use,
    /// Get the next one.
    Refresh,
}

/// Decides after the record was read under the lock. `refused` is what the server did not take; another token than
/// that was got by somebody else meanwhile.
pub(crate) fn token_action(
    stored: Option<&StoredGrant>,
    rejected: Option<&Authorization>,
    now: u64,
    leeway: Duration,
) -> TokenAction {
    let Some(grant) = stored else { return TokenAction::None };
    let token = Authorization::bearer(grant.access_token.reveal());
    if Some(&token) == rejected || grant.is_stale(now, leeway) {
        return TokenAction::Refresh;
    }
    TokenAction::Use
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    #[test]
    fn who_finds_a_newer_token_uses_it() {
        let stored = grant(1_000, Some(2_000));
        let (same, older) = (Authorization::bearer("acc3ss"), Authorization::bearer("older"));
        let check =
            |stored: Option<&StoredGrant>, rejected: Option<&Authorization>, now, expected| {
                assert_eq!(token_action(stored, rejected, now, Duration::ZERO), expected);
            };
        check(None, None, 1_500, TokenAction::None);
        check(Some(&stored), None, 1_500, TokenAction::Use);
        check(Some(&stored), None, 2_001, TokenAction::Refresh);
        check(Some(&stored), Some(&older), 1_500, TokenAction::Use);
        check(Some(&stored), Some(&older), 2_001, TokenAction::Refresh);
        check(Some(&stored), Some(&same), 1_500, TokenAction::Refresh);
    }
}
