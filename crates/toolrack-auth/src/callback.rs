//! What the browser brings back, and whether it may be used.
//!
//! **Invariant:** neither the code nor a word of the error is looked at before state and issuer are right.

use toolrack_transport::AuthError;
use url::form_urlencoded;

use crate::error::{refused, untrusted};
use crate::secret::Secret;

/// What was noted when the browser was sent off.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedCallback {
    pub(crate) state: Secret,
    /// The issuer, exactly as the authorization server writes it.
    pub(crate) issuer: String,
    /// Whether the authorization server has promised to name itself.
    pub(crate) sends_issuer: bool,
}

/// The parameters of a redirect. Each may stand there once.
#[derive(Debug, Default)]
struct CallbackParams {
    state: Option<String>,
    iss: Option<String>,
    code: Option<Secret>,
    error: Option<String>,
    description: Option<String>,
}

/// The code, if the redirect is an answer to our question and from whom we asked.
pub(crate) fn validate_callback(
    query: &str,
    expected: &ExpectedCallback,
) -> Result<Secret, AuthError> {
    let params = CallbackParams::parse(query)?;
    if params.state.as_deref() != Some(expected.state.reveal()) {
        return Err(untrusted("the redirect does not belong to this login"));
    }
    check_issuer(params.iss.as_deref(), expected)?;
    if let Some(error) = params.error {
        let description = params.description.map(|text| format!(": {text}")).unwrap_or_default();
        return Err(refused(format_args!("{error}{description}")));
    }
    params.code.ok_or_else(|| untrusted("the redirect carries no code"))
}

/// True if a redirect belongs to the login with this state. Says nothing about anything else.
pub(crate) fn has_state(query: &str, state: &Secret) -> bool {
    CallbackParams::parse(query).is_ok_and(|params| params.state.as_deref() == Some(state.reveal()))
}

/// The table of RFC 9207 (protocol facts §20.2). Strings are compared as they are: no normalisation at all.
fn check_issuer(iss: Option<&str>, expected: &ExpectedCallback) -> Result<(), AuthError> {
    match (expected.sends_issuer, iss) {
        (_, Some(iss)) if iss == expected.issuer => Ok(()),
        (_, Some(_)) => Err(untrusted(format_args!(
            "the redirect comes from another issuer than {}",
            expected.issuer
        ))),
        (true, None) => Err(untrusted(format_args!(
            "the redirect does not name its issuer, though {} always does",
            expected.issuer
        ))),
        (false, None) => Ok(()),
    }
}

impl CallbackParams {
    fn parse(query: &str) -> Result<Self, AuthError> {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let is_repeated = match name.as_ref() {
                "state" => params.state.replace(value).is_some(),
                "iss" => params.iss.replace(value).is_some(),
                "code" => params.code.replace(Secret::new(value)).is_some(),
                "error" => params.error.replace(value).is_some(),
                "error_description" => params.description.replace(value).is_some(),
                _ => false,
            };
            if is_repeated {
                return Err(untrusted("the redirect says something twice"));
            }
        }
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://a/t";
    const ISS: &str = "iss=https%3A%2F%2Fa%2Ft";

    /// Whether the issuer has promised to name itself.
    #[derive(Clone, Copy, PartialEq)]
    enum Promise {
        Given,
        Absent,
    }

    /// The code, or a part of the refusal.
    #[track_caller]
    fn check(promise: Promise, query: &str, expected: Result<&str, &str>) {
        let expected_callback = ExpectedCallback {
            state: Secret::new("s1"),
            issuer: ISSUER.to_owned(),
            sends_issuer: promise == Promise::Given,
        };
        match (validate_callback(query, &expected_callback), expected) {
            (Ok(code), Ok(expected)) => assert_eq!(code.reveal(), expected),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{error}");
                assert!(!error.contains("EVIL"), "{error}");
            }
            (found, _) => panic!("{query}: {found:?}"),
        }
    }

    #[test]
    fn the_issuer_table_holds() {
        check(Promise::Given, &format!("code=c&state=s1&{ISS}"), Ok("c"));
        check(Promise::Given, "code=c&state=s1", Err("does not name its issuer"));
        check(Promise::Absent, &format!("code=c&state=s1&{ISS}"), Ok("c"));
        check(Promise::Absent, "code=c&state=s1", Ok("c"));
        for wrong in
            ["https%3A%2F%2Fevil", "https%3A%2F%2Fa%2Ft%2F", "https%3A%2F%2FA%2Ft", "", "%20"]
        {
            check(Promise::Given, &format!("code=c&state=s1&iss={wrong}"), Err("another issuer"));
            check(Promise::Absent, &format!("code=c&state=s1&iss={wrong}"), Err("another issuer"));
        }
        check(
            Promise::Absent,
            "code=c&state=s1&iss=https%3A%2F%2Fa%3A443%2Ft",
            Err("another issuer"),
        );
    }

    #[test]
    fn the_state_comes_first() {
        check(Promise::Absent, "code=c&state=other", Err("does not belong"));
        check(Promise::Absent, "code=c&state=", Err("does not belong"));
        check(Promise::Absent, "code=c", Err("does not belong"));
        check(Promise::Absent, "error=EVIL&error_description=EVIL", Err("does not belong"));
    }

    #[test]
    fn an_error_is_shown_only_if_it_comes_from_the_right_issuer() {
        check(Promise::Absent, "state=s1&error=access_denied", Err("refused: access_denied"));
        check(
            Promise::Given,
            &format!("state=s1&error=access_denied&error_description=not%1Btoday&{ISS}"),
            Err("access_denied: not"),
        );
        check(Promise::Given, "state=s1&error=EVIL&error_description=EVIL", Err("does not name"));
        check(Promise::Absent, "state=s1&error=EVIL&iss=https%3A%2F%2Fevil", Err("another issuer"));
    }

    #[test]
    fn a_redirect_says_each_thing_once() {
        check(Promise::Absent, "code=c&code=d&state=s1", Err("twice"));
        check(Promise::Absent, "code=c&state=s1&state=s1", Err("twice"));
        check(Promise::Absent, &format!("code=c&state=s1&iss=EVIL&{ISS}"), Err("twice"));
        check(Promise::Absent, "state=s1", Err("no code"));
    }

    #[test]
    fn a_state_is_recognised_without_using_anything_else() {
        assert!(has_state("state=s1&error=x", &Secret::new("s1")));
        assert!(!has_state("state=s2", &Secret::new("s1")));
        assert!(!has_state("code=c", &Secret::new("")));
    }
}
