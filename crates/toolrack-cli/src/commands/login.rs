//! `toolrack login`: somebody lets us in at a server over HTTP.

use std::io;
use std::sync::Arc;

use serde_json::json;
use toolrack_auth::{Browser, Errand, PastedRedirect, Status, SystemBrowser};
use toolrack_manager::with_causes;
use toolrack_service::{ErrorCode, LocalService};
use toolrack_transport::{AuthError, BoxFuture, plain_text};

use crate::args::config::LoginOptions;
use crate::config_service::{find, must_exist, with_service};
use crate::context::Surroundings;
use crate::elicitation::read_line;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::external_program::open_page;
use crate::printer::Printer;
use crate::suggested_command::word;
use crate::time_format;

const MOST_CHARS: usize = 4000;

/// Logs in at a server.
pub(crate) async fn login(
    options: &LoginOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let (name, printer) = (&options.server, &surroundings.printer);
    must_exist(name, surroundings)?;
    let make = if options.no_browser { pasted } else { system };
    let browser = make(Arc::clone(printer));
    with_service(surroundings, Some(browser), async |service: &LocalService| {
        let authorizer = service.authorizer(find(service, name)?.id)?;
        let login = async { authorizer.login().await.map_err(|it| refused(name, &it)) };
        let status = surroundings.unless_stopped(login).await?;
        let (text, said) = told(name, &status);
        printer.done(text, &said);
        Ok(())
    })
    .await
}

fn refused(name: &str, error: &AuthError) -> Failure {
    let message = format!("`{name}` did not let us in: {}", with_causes(error));
    let typed = word(name);
    let hint = match error {
        AuthError::Unregistered { .. } => format!(
            "make a token at the server, and send it: `toolrack edit {typed}`, \
             `headers = {{ Authorization = \"Bearer ${{TOKEN}}\" }}`"
        ),
        _ => format!("run `toolrack login {typed}` again; `--no-browser` needs no browser here"),
    };
    Failure::new(Verdict::Auth, ErrorCode::Unauthorized, message, hint)
}

fn told(name: &str, status: &Status) -> (String, serde_json::Value) {
    let Status::LoggedIn { issuer, scopes, expires_at, renewable, .. } = status else {
        return (format!("`{name}` needs no login"), json!({ "name": name, "logged_in": false }));
    };
    let until = expires_at.map(time_format::utc);
    let lasting = match (&until, renewable) {
        (_, true) => "it is renewed by itself".to_owned(),
        (Some(until), false) => format!("it ends at {until}"),
        (None, false) => "it ends when the server says so".to_owned(),
    };
    let issuer = plain_text(issuer, MOST_CHARS);
    let said = json!({
        "name": name, "logged_in": true, "issuer": issuer, "scopes": scopes,
        "expires_at": until, "renewable": renewable,
    });
    (format!("logged in at `{name}` by {issuer}; {lasting}"), said)
}

/// Opens pages with the user's browser. The address is shown too, for whoever has none here.
fn system(printer: Arc<Printer>) -> Arc<dyn Browser> {
    let opener = move |url: &url::Url| {
        let shown = plain_text(url.as_str(), MOST_CHARS);
        printer.ask(format_args!(
            "Log in on this page, which your browser should show now:\n  {shown}\n"
        ));
        if let Err(error) = open_page(url.as_str()) {
            printer.ask(format_args!("Open it yourself: {error}\n"));
        }
        Ok(())
    };
    Arc::new(SystemBrowser::new(Arc::new(opener)))
}

/// Shows the address, and asks where it led.
fn pasted(printer: Arc<Printer>) -> Arc<dyn Browser> {
    let ask = move |errand: Errand| -> BoxFuture<'static, io::Result<String>> {
        let printer = Arc::clone(&printer);
        Box::pin(async move {
            let shown = plain_text(errand.url.as_str(), MOST_CHARS);
            printer.ask(format_args!(
                "Open this page in any browser and log in:\n  {shown}\nIt leads to an address that cannot be \
                 shown. Paste that address here: "
            ));
            read_line().await.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
    };
    Arc::new(PastedRedirect::new(ask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &AuthError, hint: &str) {
        let failure = refused("it", error);
        assert_eq!((failure.verdict(), failure.hint()), (Verdict::Auth, Some(hint)));
    }

    #[test]
    fn a_login_that_cannot_work_is_not_proposed_again() {
        let reason = String::new;
        let again = "run `toolrack login it` again; `--no-browser` needs no browser here";
        check(&AuthError::Unreachable { reason: reason() }, again);
        check(
            &AuthError::Unregistered { reason: reason() },
            "make a token at the server, and send it: `toolrack edit it`, \
             `headers = { Authorization = \"Bearer ${TOKEN}\" }`",
        );
    }
}
