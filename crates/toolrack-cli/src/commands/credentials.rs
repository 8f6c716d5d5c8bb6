//! `toolrack login`, `logout` and `secret`: OAuth logins and the secret store.
//!
//! **Invariant:** a secret value comes from the terminal or stdin, never from the command line,
//! where other users and the shell history would see it. It is never printed, and the terminal's
//! echo is restored on every exit path.

use std::io::{self, Read as _};
use std::sync::Arc;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use toolrack_auth::{Browser, LoginRequest, LoginStatus, PastedRedirect, SystemBrowser};
use toolrack_config::{did_you_mean, similar_names};
use toolrack_manager::error_chain;
use toolrack_mcp::WebUrl;
use toolrack_service::{ConfigInput, ErrorCode, LocalService, McpConfig, McpService as _, Secret};
use toolrack_transport::{AuthError, BoxFuture, sanitize_line};

use crate::args::{LoginOptions, SecretAction};
use crate::commands::Context;
use crate::config_service::{with_server, with_service};
use crate::elicitation::read_line;
use crate::error::{CliError, ExitCode, server_command};
use crate::external_program::open_page;
use crate::printer::{List, Printer, format_utc};
use crate::settings::StreamKind;

const MAX_URL_CHARS: usize = 4000;

/// Logs in to a server.
pub(crate) async fn login(options: LoginOptions, context: &Context) -> Result<(), CliError> {
    let (name, printer) = (&options.server, &context.printer);
    let make = if options.no_browser { manual_browser } else { system_browser };
    let browser = Some(make(Arc::clone(printer)));
    with_server(name, browser, context, async |service: &LocalService, config: McpConfig| {
        let authorizer = service.authorizer(config.id)?;
        let login = async { authorizer.login().await.map_err(|error| login_failed(name, &error)) };
        let status = context.run_cancellable(login).await?;
        let LoginStatus::LoggedIn { issuer, scopes, expires_at, renewable, .. } = &status else {
            let json = json!({ "name": name, "logged_in": false });
            printer.done(format_args!("`{name}` does not require a login"), &json);
            return Ok(());
        };
        let until = expires_at.map(format_utc);
        let expiry = match (&until, renewable) {
            (_, true) => "the token is refreshed automatically".to_owned(),
            (Some(until), false) => format!("the token expires at {until}"),
            (None, false) => "the server does not say when the token expires".to_owned(),
        };
        let issuer = sanitize_line(issuer, MAX_URL_CHARS);
        let json = json!({
            "name": name, "logged_in": true, "issuer": issuer, "scopes": scopes,
            "expires_at": until, "renewable": renewable,
        });
        printer.done(format_args!("logged in to `{name}` via {issuer}; {expiry}"), &json);
        Ok(())
    })
    .await
}

fn login_failed(name: &str, error: &AuthError) -> CliError {
    let message = format!("authentication with `{name}` failed: {}", error_chain(error));
    let hint = match error {
        AuthError::Unregistered { .. } => format!(
            "create a token at the server and send it in a header: run {} and add `headers = \
             {{ Authorization = \"Bearer ${{TOKEN}}\" }}`",
            server_command("edit", name)
        ),
        _ => format!(
            "run {} again; without a browser on this machine, add `--no-browser`",
            server_command("login", name)
        ),
    };
    CliError::new(ExitCode::Auth, ErrorCode::Unauthorized, message, hint)
}

/// The URL of a login page, with its host in ASCII, and a note if the host may imitate another.
fn login_page(url: &url::Url) -> String {
    let display_url = sanitize_line(url.as_str(), MAX_URL_CHARS);
    let note = WebUrl::parse(url.as_str()).ok().and_then(|url| url.host_note());
    note.map_or(display_url.clone(), |note| format!("{display_url}\nnote: {note}"))
}

/// Opens the login page in the user's browser, and prints the URL as a fallback.
fn system_browser(printer: Arc<Printer>) -> Arc<dyn Browser> {
    let opener = move |url: &url::Url| {
        let display_url = login_page(url);
        printer.prompt(format_args!(
            "Log in on this page, which should open in your browser:\n  {display_url}\n"
        ));
        if let Err(error) = open_page(url.as_str()) {
            printer.prompt(format_args!("Open the page yourself: {error}\n"));
        }
        Ok(())
    };
    Arc::new(SystemBrowser::new(Arc::new(opener)))
}

/// Prints the login URL, and asks for the URL that the browser is redirected to.
fn manual_browser(printer: Arc<Printer>) -> Arc<dyn Browser> {
    let ask = move |request: LoginRequest| -> BoxFuture<'static, io::Result<String>> {
        let printer = Arc::clone(&printer);
        Box::pin(async move {
            let display_url = login_page(&request.url);
            printer.prompt(format_args!(
                "Open this page in any browser and log in:\n  {display_url}\nYou will be redirected to \
                 a URL that cannot be displayed. Paste that URL here: "
            ));
            read_line().await.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
    };
    Arc::new(PastedRedirect::new(ask))
}

/// Logs out of a server, and revokes the token there.
pub(crate) async fn logout(name: String, context: &Context) -> Result<(), CliError> {
    with_server(&name, None, context, async |service: &LocalService, config: McpConfig| {
        let authorizer = service.authorizer(config.id)?;
        let logout_failed = |error: AuthError| {
            let message = format!("cannot log out of `{name}`: {}", error_chain(&error));
            let hint = "check the permissions of the data directory and try again";
            CliError::new(ExitCode::Auth, ErrorCode::Unauthorized, message, hint)
        };
        let before = authorizer.status().await.map_err(logout_failed)?;
        let logout_request = async { authorizer.logout().await.map_err(logout_failed) };
        context.run_cancellable(logout_request).await?;
        let json = json!({ "name": name, "logged_in": false });
        let text = match before {
            LoginStatus::LoggedOut => format!("not logged in to `{name}`"),
            _ => format!("logged out of `{name}`"),
        };
        context.printer.done(text, &json);
        Ok(())
    })
    .await
}

/// Runs a `secret` subcommand.
pub(crate) async fn secret(action: SecretAction, context: &Context) -> Result<(), CliError> {
    if let SecretAction::Set { name, value } = &action
        && (value.is_some() || name.contains('='))
    {
        return Err(CliError::usage(
            "secrets cannot be passed on the command line, where other users and the shell \
             history can see them",
            "give only the name, and type the value at the prompt or pipe it in; consider the \
             value just typed exposed",
        ));
    }
    with_service(ConfigInput::File, None, context, async |service: &LocalService| match &action {
        SecretAction::Set { name, .. } => set_secret(name, service, context).await,
        SecretAction::List => list_secrets(service, &context.printer),
        SecretAction::Remove { name } => remove_secret(name, service, &context.printer).await,
    })
    .await
}

async fn set_secret(name: &str, service: &LocalService, context: &Context) -> Result<(), CliError> {
    // Rejects an invalid name before the user types the value.
    let present = service.secrets().get(name);
    let present = present
        .map_err(|error| CliError::from_service(error, "choose a name such as `github-token`"))?;
    let value = read_secret(name, context).await?;
    service.set_secret(name, value).await?;
    let users = servers_using(&service.list(), name);
    let text = match (present, users.as_slice()) {
        (None, []) => format!(
            "stored secret `{name}`; use it with `--env-secret VARIABLE={name}` or \
             `${{secret:{name}}}`"
        ),
        (None, users) => format!("stored secret `{name}`, used by {}", users.join(", ")),
        (Some(_), _) => format!("updated secret `{name}`"),
    };
    context.printer.done(text, &json!({ "name": name, "used_by": users }));
    Ok(())
}

fn list_secrets(service: &LocalService, printer: &Printer) -> Result<(), CliError> {
    let names = service.secrets().list()?;
    let configs = service.list();
    if names.is_empty() {
        printer.note("note: no secrets stored; store one with `toolrack secret set NAME`");
    }
    let mut list = List::new(&["NAME", "USED BY"]);
    for name in names {
        let users = servers_using(&configs, &name);
        let item = json!({ "name": name, "used_by": users });
        list.push(vec![name, users.join(", ")], &item);
    }
    printer.list(&list);
    Ok(())
}

async fn remove_secret(
    name: &str,
    service: &LocalService,
    printer: &Printer,
) -> Result<(), CliError> {
    let names = service.secrets().list()?;
    if !names.iter().any(|stored| stored == name) {
        let suggestion = did_you_mean(&similar_names(name, names.iter().map(String::as_str)));
        let hint = "list secrets with `toolrack secret list`";
        return Err(CliError::unknown(format!("secret not found{suggestion}"), hint));
    }
    let users = servers_using(&service.list(), name);
    service.remove_secret(name).await?;
    let suffix = match users.as_slice() {
        [] => String::new(),
        users => format!("; still used by {}", users.join(", ")),
    };
    let text = format!("removed secret `{name}`{suffix}");
    printer.done(text, &json!({ "name": name, "used_by": users }));
    Ok(())
}

/// Names of the servers that use a secret.
fn servers_using(configs: &[McpConfig], secret: &str) -> Vec<String> {
    let reference = format!("${{secret:{secret}}}");
    let refers = |config: &&McpConfig| {
        config.env_vars.values().any(|variable| {
            let value = variable.value.as_deref().unwrap_or_default();
            variable.secret_ref.as_deref() == Some(secret) || value.contains(&reference)
        }) || config.config.to_string().contains(&reference)
            || config.package.identifier.contains(&reference)
    };
    configs.iter().filter(refers).map(|config| config.name.clone()).collect()
}

/// Slightly more than the store's limit, so that the store reports the error.
const MAX_SECRET_BYTES: u64 = (64 << 10) + 3;

/// Reads a secret: prompted for on a terminal, otherwise from stdin.
pub(crate) async fn read_secret(name: &str, context: &Context) -> Result<Secret, CliError> {
    if context.settings.streams.stdin != StreamKind::Terminal {
        return context.blocking(read_piped_secret).await;
    }
    let printer = &context.printer;
    // Before the prompt: keys that are pressed early must not be echoed.
    let echo_off = EchoOff::new()?;
    printer.prompt(format_args!("Value of `{name}` (hidden): "));
    let typed = context.run_cancellable(async { Ok(read_line().await) }).await;
    drop(echo_off);
    printer.prompt("\n");
    match typed?.map(|line| line.trim_end_matches(['\r', '\n']).to_owned()) {
        Some(value) if !value.is_empty() => Ok(Secret::from(value)),
        _ => Err(CliError::usage("no value entered", "run the command again; nothing was stored")),
    }
}

fn read_piped_secret() -> Result<Secret, CliError> {
    let mut value = String::new();
    let read = io::stdin().take(MAX_SECRET_BYTES).read_to_string(&mut value);
    let value = Secret::from(value);
    match read {
        Ok(0) => Err(CliError::usage(
            "no value on stdin",
            "pipe it in, e.g. `pass show token | toolrack secret set NAME`, or run the command \
             on a terminal",
        )),
        Ok(_) => Ok(value),
        Err(error) => {
            let message = format!("cannot read the value: {error}");
            Err(CliError::usage(message, "a secret is UTF-8 text of at most 64 KiB"))
        }
    }
}

/// Turns the terminal's echo off until dropped.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    fn new() -> Result<Self, CliError> {
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut mode = before.clone();
        mode.local_modes.remove(LocalModes::ECHO);
        // `Flush` discards input that was typed before the prompt.
        tcsetattr(io::stdin(), OptionalActions::Flush, &mode).map_err(io::Error::from)?;
        Ok(Self { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Best effort: the terminal may be gone.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &AuthError, hint: &str) {
        let failure = login_failed("it", error);
        assert_eq!((failure.exit_code, failure.hint()), (ExitCode::Auth, Some(hint)));
    }

    #[test]
    fn host_of_a_login_page_is_shown_in_ascii() {
        let shown = |url: &str| login_page(&url::Url::parse(url).unwrap());
        assert_eq!(shown("https://login.example/a"), "https://login.example/a");
        assert_eq!(
            shown("https://l\u{43e}gin.example/a"),
            "https://xn--lgin-55d.example/a\nnote: the host `xn--lgin-55d.example` has letters that \
             are not ASCII and may imitate another host"
        );
    }

    #[test]
    fn impossible_login_is_not_suggested() {
        let reason = String::new;
        let again =
            "run `toolrack login it` again; without a browser on this machine, add `--no-browser`";
        check(&AuthError::Unreachable { reason: reason() }, again);
        check(
            &AuthError::Unregistered { reason: reason() },
            "create a token at the server and send it in a header: run `toolrack edit it` and add `headers = { Authorization = \"Bearer ${TOKEN}\" }`",
        );
    }
}
