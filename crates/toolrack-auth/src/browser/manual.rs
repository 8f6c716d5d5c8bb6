//! Login without a browser on this machine: the person opens the page elsewhere and pastes where it led.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use super::{Browser, Errand, Landing, Outcome, Visit};
use crate::error::{login_needed, untrusted};
use crate::secret::Secret;

const PATIENCE: Duration = Duration::from_mins(5);

/// Where pages lead that nobody serves: the browser shows an error, and the address bar has what we need.
const REDIRECT: &str = "http://127.0.0.1:33418/callback";

type Ask = Arc<dyn Fn(Errand) -> BoxFuture<'static, io::Result<String>> + Send + Sync>;

/// A person who is shown a URL and pastes the one that it led to.
#[derive(Clone)]
pub struct PastedRedirect {
    ask: Ask,
    redirect_uri: String,
}

/// A question that has not been asked yet.
struct Asking(PastedRedirect);

/// What was pasted.
struct Pasted(Secret);

impl PastedRedirect {
    /// `ask` shows the URL of the errand and gives back what the person pastes.
    pub fn new(
        ask: impl Fn(Errand) -> BoxFuture<'static, io::Result<String>> + Send + Sync + 'static,
    ) -> Self {
        Self { ask: Arc::new(ask), redirect_uri: REDIRECT.to_owned() }
    }

    /// Uses this redirect, for a client that was registered with it.
    #[must_use]
    pub fn at(mut self, redirect_uri: &str) -> Self {
        redirect_uri.clone_into(&mut self.redirect_uri);
        self
    }
}

impl Browser for PastedRedirect {
    fn prepare<'a>(
        &'a self,
        _wish: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn Visit>, AuthError>> {
        Box::pin(async { Ok(Box::new(Asking(self.clone())) as Box<dyn Visit>) })
    }
}

impl Visit for Asking {
    fn redirect_uri(&self) -> &str {
        &self.0.redirect_uri
    }

    fn go(
        self: Box<Self>,
        errand: Errand,
    ) -> BoxFuture<'static, Result<Box<dyn Landing>, AuthError>> {
        Box::pin(async move {
            let pasted = match timeout(PATIENCE, (self.0.ask)(errand.clone())).await {
                Ok(Ok(text)) => Secret::new(text),
                Ok(Err(error)) => {
                    return Err(login_needed(format_args!("nothing was pasted: {error}")));
                }
                Err(_elapsed) => return Err(login_needed("nobody has logged in in time")),
            };
            let query = query(&pasted, &self.0.redirect_uri)?;
            Ok(Box::new(Pasted(query)) as Box<dyn Landing>)
        })
    }
}

/// The query of a pasted redirect: the whole URL, or only its query.
fn query(pasted: &Secret, redirect_uri: &str) -> Result<Secret, AuthError> {
    let text = pasted.reveal().trim().trim_matches(['"', '\'', '<', '>']);
    if let Some(query) = text.strip_prefix('?') {
        return Ok(Secret::new(query));
    }
    let elsewhere =
        || untrusted(format_args!("what was pasted does not begin with {redirect_uri}"));
    let url = Url::parse(text).map_err(|_syntax| elsewhere())?;
    let home = Url::parse(redirect_uri).map_err(|_syntax| elsewhere())?;
    if url.origin() != home.origin() || url.path() != home.path() {
        return Err(elsewhere());
    }
    Ok(Secret::new(url.query().unwrap_or_default()))
}

impl Landing for Pasted {
    fn query(&self) -> &Secret {
        &self.0
    }

    fn conclude(self: Box<Self>, _outcome: Outcome) -> BoxFuture<'static, ()> {
        // Whoever pasted it sits at the program that asked.
        Box::pin(async {})
    }
}

impl fmt::Debug for PastedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastedRedirect")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_must_be_our_redirect() {
        let check = |text: &str, expected: Option<&str>| {
            let found = query(&Secret::new(text), REDIRECT);
            assert_eq!(found.as_ref().ok().map(Secret::reveal), expected, "{text}");
            if let Err(error) = found {
                assert!(!error.to_string().contains("c0de"), "{error}");
            }
        };
        check(" http://127.0.0.1:33418/callback?code=c0de&state=s\n", Some("code=c0de&state=s"));
        check("\"http://127.0.0.1:33418/callback?code=c0de\"", Some("code=c0de"));
        check("?code=c0de&state=s", Some("code=c0de&state=s"));
        check("http://127.0.0.1:33418/callback", Some(""));
        check("http://evil/callback?code=c0de", None);
        check("http://127.0.0.1:33418/other?code=c0de", None);
        check("c0de", None);
        check("", None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_who_never_pastes_is_not_waited_for_for_ever() {
        let silent = PastedRedirect::new(|_errand| Box::pin(std::future::pending()));
        let visit = silent.prepare(None).await.unwrap();
        let url = Url::parse("https://a/authorize").unwrap();
        let landed = visit.go(Errand::new(url, "https://a", &[], Secret::new("s"))).await;
        assert!(matches!(landed.err(), Some(AuthError::LoginNeeded { .. })));
    }
}
