//! Whether what is kept can be used as it is, has to be renewed, or helps nobody.

use std::time::Duration;

use toolrack_transport::Authorization;

use crate::stored_credentials::GrantRecord;

/// What to do with the token that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// There is none.
    Nothing,
    /// Use it: it is fresh, and nobody has refused it.
    Use,
    /// Get the next one.
    Renew,
}

/// Decides after the record was read under the lock. `refused` is what the server did not take; another token than
/// that was got by somebody else meanwhile.
pub(crate) fn renewal(
    kept: Option<&GrantRecord>,
    refused: Option<&Authorization>,
    now: u64,
    leeway: Duration,
) -> Renewal {
    let Some(grant) = kept else { return Renewal::Nothing };
    let token = Authorization::bearer(grant.access_token.reveal());
    if Some(&token) == refused || grant.is_stale(now, leeway) {
        return Renewal::Renew;
    }
    Renewal::Use
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    #[test]
    fn who_finds_a_newer_token_uses_it() {
        let kept = grant(1_000, Some(2_000));
        let (same, older) = (Authorization::bearer("acc3ss"), Authorization::bearer("older"));
        let check = |kept: Option<&GrantRecord>, refused: Option<&Authorization>, now, expected| {
            assert_eq!(renewal(kept, refused, now, Duration::ZERO), expected);
        };
        check(None, None, 1_500, Renewal::Nothing);
        check(Some(&kept), None, 1_500, Renewal::Use);
        check(Some(&kept), None, 2_001, Renewal::Renew);
        check(Some(&kept), Some(&older), 1_500, Renewal::Use);
        check(Some(&kept), Some(&older), 2_001, Renewal::Renew);
        check(Some(&kept), Some(&same), 1_500, Renewal::Renew);
    }
}
