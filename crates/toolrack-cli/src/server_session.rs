//! Server session: the servers that a command uses, started here or in the daemon; queries to all
//! of them at once.
//!
//! **Invariant:** a server starts only when it is needed. When [`ServerSession::close`] returns,
//! every server started here has ended or is left to its guardian.
//!
//! **Invariant:** a failing server does not hide the others, and no error is lost.

use std::cell::Cell;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::time::timeout;
use toolrack::Environment;
use toolrack_client::{CallError, CallOptions, McpClient, Truncated};
use toolrack_config::{McpServerConfig, McpTransport, StartMode, without_secrets};
use toolrack_http::HttpOptions;
use toolrack_manager::{
    ConnectPhase, ConnectionState, ErrorKind, ManagerError, ManagerEvent, McpConnection, McpManager,
};
use toolrack_mcp::Tool;
use toolrack_service::{
    ConfigInput, ErrorCode, ErrorDetail, InsecureHome, LocalService, LogKind, LogLine, McpStatus,
    ServiceOptions,
};
use toolrack_stdio::{Guardian, PreparedGuardian, ShutdownTimeouts, StdioOptions};
use toolrack_transport::RawJson;

use crate::args::{RequestOptions, TargetOptions};
use crate::commands::Context;
use crate::daemon_client::{self, Daemon, Status};
use crate::elicitation::ElicitationHandler;
use crate::error::{CliError, ExitCode, command, server_command};
use crate::printer::{List, Output, Printer, Spinner};
use crate::server_selection::{ResolvedName, ServerSource, Servers};
use crate::settings::{self, Verbosity};

/// Shorter than the daemon's, because the user waits for the shell prompt.
const SHUTDOWN_TIMEOUTS: ShutdownTimeouts =
    ShutdownTimeouts { close_stdin: Duration::from_secs(1), terminate: Duration::from_millis(700) };
/// Maximum time to wait for all servers to end. Their guardians carry on without us.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(2500);

/// Servers that start on demand.
pub(crate) struct ServerSession {
    service: LocalService,
    pub(crate) configs: Vec<McpServerConfig>,
    source: ServerSource,
    /// The daemon that runs the servers, if it is not this process.
    pub(crate) daemon: Option<Daemon>,
    context: Context,
    /// Whether a server was started in this process.
    has_started: Cell<bool>,
}

impl ServerSession {
    pub(crate) fn manager(&self) -> &McpManager {
        self.service.manager()
    }

    /// Lists cached tools without starting servers. Returns the servers whose tools are unknown.
    pub(crate) async fn list_cached(&self) -> Result<Vec<UnlistedServer>, CliError> {
        let enabled: Vec<&McpServerConfig> =
            self.configs.iter().filter(|config| config.enabled).collect();
        let mut statuses = Vec::new();
        if let Some(daemon) = &self.daemon {
            statuses = daemon.statuses().await?;
            // The daemon knows the tools of all servers that have run.
            let is_known = |config: &&&McpServerConfig| {
                statuses.iter().any(|one| one.name == config.name && one.n_tools_total.is_some())
            };
            let known = enabled.iter().filter(is_known);
            let connections =
                known.map(|config| self.manager().connect(&config.name, (*config).clone()));
            let connected = async { Ok(join_all(connections).await) };
            for outcome in daemon.while_alive(connected).await? {
                match outcome {
                    // A server that failed is listed with its reason below.
                    Ok(_) | Err(ManagerError::NotConnected { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        } else {
            let known = enabled.iter().filter(|config| self.is_known(&config.name));
            // Lazy, so that connecting reads the cache and starts nothing.
            let lazy =
                known.map(|config| McpServerConfig { start: StartMode::Lazy, ..(*config).clone() });
            self.manager().reconcile(&[], &lazy.collect::<Vec<_>>()).await?;
        }
        let unlisted = enabled.iter().filter_map(|config| {
            let status = statuses.iter().find(|one| one.name == config.name);
            Some((config.name.clone(), self.unlisted_reason(&config.name, status)?))
        });
        Ok(unlisted.collect())
    }

    /// Why a server's tools are not listed, if so. `status` is its status in the daemon.
    fn unlisted_reason(&self, name: &str, status: Option<&Status>) -> Option<UnlistedReason> {
        let has_tools = self.manager().all_tools().iter().any(|tool| **tool.server() == *name);
        match status.map(|status| (&status.state, status.n_tools)) {
            _ if has_tools => return None,
            // Idle servers keep their tools; stopped ones do not.
            Some((McpStatus::Stopped, 1..)) => return Some(UnlistedReason::Stopped),
            Some((McpStatus::Error { .. }, _)) => return Some(UnlistedReason::Failed),
            // The daemon may be retrying at this moment.
            _ if self.is_known(name) => return None,
            _ => {}
        }
        let id = status.map(|status| status.id).or_else(|| self.service.id_for_name(name));
        let log = id.and_then(|id| self.service.logs().read(id).ok());
        match log.and_then(last_outcome) {
            Some(last) if last.kind == LogKind::Failure => Some(UnlistedReason::Failed),
            _ => Some(UnlistedReason::NotQueried),
        }
    }

    /// Starts or connects to a server, and waits until it is ready.
    pub(crate) async fn connect(&self, name: &str) -> Result<Arc<McpConnection>, CliError> {
        let Some(config) = self.configs.iter().find(|config| config.name == name) else {
            return Err(self.manager().server(name).err().unwrap_or(ManagerError::Closed).into());
        };
        if !config.enabled {
            return Err(self.not_connected(config, &ConnectionState::Disabled));
        }
        self.has_started.set(self.daemon.is_none());
        let phase = format!("{name}: {}", ConnectPhase::default().as_str());
        let spinner = Spinner::new(&self.context.printer, &phase);
        // Boxed, as below: the future is large, and every layer around it would hold a copy.
        let connecting = Box::pin(async {
            if let Some(daemon) = &self.daemon {
                // The daemon starts it first: its own error says more than a failed connection
                // to the gateway.
                daemon.act_and_wait(name, "start").await?;
                let known = self.manager().server(name).ok();
                let tools = known.as_ref().and_then(|connection| connection.tool_list());
                if tools.is_some_and(|listing| listing.items.is_empty()) {
                    // Its empty list dates from when it was not running.
                    return Ok(self.manager().reconnect(name).await?);
                }
            }
            Ok(self.manager().start(name).await?)
        });
        let connection = self.run(name, Some(spinner), connecting).await?;
        match connection.state() {
            ConnectionState::Connected => Ok(connection),
            state => Err(self.not_connected(config, state)),
        }
    }

    /// Queries all enabled servers concurrently.
    pub(crate) async fn query_all<T: Default>(
        &self,
        query: impl AsyncFn(&McpClient) -> Result<T, CliError>,
    ) -> FanOut<T> {
        let query = &query;
        // A single named server is queried even if disabled, to get the error.
        let is_queried = |config: &&McpServerConfig| config.enabled || self.configs.len() == 1;
        let names = self.configs.iter().filter(is_queried).map(|config| config.name.as_str());
        // In parallel: a hanging server delays the list by its own timeout only once.
        let queries = names.map(|name| async move {
            let outcome = async {
                let connection = self.connect(name).await?;
                let Some(client) = connection.client() else { return Ok(T::default()) };
                self.run(name, None, query(client)).await
            };
            (name, outcome.await)
        });
        let mut results = FanOut { responses: Vec::new(), failures: Vec::new() };
        for (name, outcome) in join_all(queries).await {
            match outcome {
                Ok(answer) => results.responses.push((name.to_owned(), answer)),
                Err(failure) => results.failures.push((name.to_owned(), failure)),
            }
        }
        results
    }

    /// The error of a server that is not connected.
    fn not_connected(&self, config: &McpServerConfig, state: &ConnectionState) -> CliError {
        let name = &config.name;
        let error = ManagerError::NotConnected { server: name.clone(), state: state.clone() };
        let general = CliError::from(error);
        let Some(failure) = state.failure() else {
            return general.with_message(format!("`{name}` is {state}"));
        };
        let general = general.with_message(format!("`{name}` is not connected: {failure}"));
        // The failure's own hint is more specific.
        let hint = |fallback: &str| failure.hint().unwrap_or(fallback).to_owned();
        match (failure.kind(), self.source) {
            (ErrorKind::NeedsLogin, ServerSource::AdHoc) if let Some(hint) = login_hint(config) => {
                general.with_message(format!("`{name}` requires a login")).with_hint(hint)
            }
            (ErrorKind::NeedsLogin, ServerSource::Configured) if config.has_authorization() => {
                general.with_hint(token_hint(config))
            }
            (ErrorKind::NeedsLogin, ServerSource::Configured) => {
                general.with_hint(format!("log in with {}", server_command("login", name)))
            }
            (ErrorKind::BadConfig | ErrorKind::MissingCredentials, ServerSource::AdHoc) => {
                let mut usage = general.with_hint(hint("check the command line"));
                usage.exit_code = ExitCode::Usage;
                usage
            }
            (ErrorKind::BadConfig | ErrorKind::MissingCredentials, _) => {
                general.with_hint(hint("fix this in the config, or set the missing value"))
            }
            _ => general,
        }
    }

    /// Calls a tool, and returns the raw result.
    pub(crate) async fn call(
        &self,
        ResolvedName { server, item }: &ResolvedName,
        arguments: &RawValue,
        options: CallOptions,
    ) -> Result<RawJson, CliError> {
        let phase = format!("{item}: waiting for the response");
        let spinner = Spinner::new(&self.context.printer, &phase);
        let (reporter, name) = (Arc::clone(&spinner), item.clone());
        let on_progress = Some(Arc::new(move |progress: &_| reporter.report(&name, progress)) as _);
        let options = CallOptions { on_progress, ..options };
        let call = self.manager().call((server, item)).args(arguments).options(options);
        let sending = Box::pin(async { Ok(call.send_raw().await?) });
        self.run(server, Some(spinner), sending).await
    }

    /// A tool from its server's list, denied or not.
    pub(crate) fn tool(&self, tool: &ResolvedName) -> Option<Tool> {
        let connection = self.manager().server(&tool.server).ok()?;
        connection.tool_list()?.items.iter().find(|listed| listed.name == tool.item).cloned()
    }

    /// The error for a tool that is denied. The daemon does not list denied tools.
    pub(crate) fn denied_error(&self, tool: &ResolvedName) -> Option<CliError> {
        self.daemon.as_ref()?;
        let rule = self.manager().server(&tool.server).ok()?.denied_by(&tool.item)?;
        let (server, tool) = (tool.server.clone(), tool.item.clone());
        Some(ManagerError::Denied { server, tool, rule }.into())
    }

    /// Whether a tool is known and not denied.
    pub(crate) fn has_tool(&self, ResolvedName { server, item }: &ResolvedName) -> bool {
        let tools = self.manager().all_tools();
        tools.iter().any(|known| **known.server() == **server && known.tool().name == *item)
    }

    /// Whether the tools of a server are known.
    fn is_known(&self, server: &str) -> bool {
        self.manager().server(server).is_ok_and(|connection| connection.tool_list().is_some())
    }

    /// Awaits `work` until Ctrl-C. Meanwhile shows the spinner, and relays the server's output.
    pub(crate) async fn run<T>(
        &self,
        server: &str,
        spinner: Option<Arc<Spinner>>,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let spinner = spinner.as_deref();
        let work = async {
            match &self.daemon {
                Some(daemon) => daemon.while_alive(work).await,
                None => work.await,
            }
        };
        let work = self.context.run_cancellable(work);
        let mut work = Box::pin(async {
            let outcome = match spinner {
                Some(spinner) => spinner.during(work).await,
                None => work.await,
            };
            outcome.map_err(|error| self.classify(error))
        });
        if spinner.is_none() && self.context.printer.verbosity != Verbosity::Verbose {
            return work.await;
        }
        let mut events = self.manager().subscribe();
        loop {
            tokio::select! {
                outcome = &mut work => {
                    // The last output of the server belongs before the result or the error. Not with a timeout of
                    // zero, which takes a millisecond.
                    loop {
                        tokio::select! {
                            biased;
                            Some(event) = events.next() => self.relay(server, spinner, &event),
                            () = ready(()) => return outcome,
                        }
                    }
                }
                Some(event) = events.next() => self.relay(server, spinner, &event),
            }
        }
    }

    /// Behind the daemon, the error of the server itself is inside the gateway's response.
    fn classify(&self, error: CliError) -> CliError {
        if self.daemon.is_some() { error.into_gateway_error() } else { error }
    }

    /// Shows the phase of a server, and with `--verbose` its output.
    fn relay(&self, target: &str, spinner: Option<&Spinner>, event: &ManagerEvent) {
        let (server, text): (&str, &dyn fmt::Display) = match event {
            ManagerEvent::PhaseChanged { server, phase } if **server == *target => {
                let phase = format!("{server}: {}", phase.as_str());
                return spinner.into_iter().for_each(|spinner| spinner.phase(&phase));
            }
            ManagerEvent::Stderr { server, line }
            | ManagerEvent::InstallerOutput { server, line } => (server, line),
            ManagerEvent::StateChanged { server, state } => (server, state),
            ManagerEvent::Warning { server: Some(server), message } => (server, message),
            _ => return,
        };
        if server == target && self.context.printer.verbosity == Verbosity::Verbose {
            self.context.printer.note(format_args!("{server}: {text}"));
        }
    }

    /// Stops all servers, and cleans up orphans of crashed runs at the same time.
    async fn close(self) {
        let closing = async {
            if !self.has_started.get() {
                // The next start cleans up.
                return self.service.close().await;
            }
            let cleanup = tokio::task::spawn_blocking(toolrack_stdio::kill_orphans);
            // At the same time, because the user waits for the prompt.
            let ((), result) = tokio::join!(self.service.close(), cleanup);
            result.map_or_else(|error| tracing::debug!(%error, "orphan cleanup failed"), drop);
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::debug!("a server is slow to stop; its guardian continues");
        }
    }
}

/// Starts a guardian ahead for the server of a call, if the call will not go through the daemon: it starts while the
/// config is read.
pub(crate) fn prepare_guardian(
    target: &TargetOptions,
    context: &Context,
) -> Result<Guardian, CliError> {
    let is_local = target.url.is_none()
        && (target.is_given() || daemon_client::find(&context.settings)?.is_none());
    Ok(if is_local { Guardian::Prepared(PreparedGuardian::start()?) } else { Guardian::Auto })
}

/// Opens a session, runs `work`, and closes the session in any case. The daemon is told the request
/// timeout, if there is one.
pub(crate) async fn with_session<T>(
    servers: Servers,
    request: &RequestOptions,
    context: &Context,
    work: impl AsyncFnOnce(&ServerSession) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let settings = &context.settings;
    let daemon = match servers.source {
        ServerSource::Configured => daemon_client::find(settings)?,
        // The daemon runs configured servers only.
        ServerSource::AdHoc => None,
    };
    let (configs, stored) = match &daemon {
        Some(daemon) => (daemon.endpoints(&servers.configs, request.timeout(settings)), None),
        None => (servers.configs, servers.stored),
    };
    let is_added = stored.is_none();
    let config = stored.map_or(ConfigInput::Servers(Vec::new()), ConfigInput::Stored);
    let mut http = HttpOptions::default();
    if !configs.iter().all(|config| matches!(config.transport, McpTransport::Stdio { .. })) {
        http.proxy = settings::proxies();
    }
    let options = ServiceOptions {
        config,
        // `Settings::home` has checked it.
        insecure_home: InsecureHome::Allow,
        agent: settings.agent.clone(),
        lookup: Some(Arc::new(Environment::from_process().with_base_dir(servers.dir))),
        handler: Some(Arc::new(ElicitationHandler::new(context, request))),
        names: Some(servers.names),
        stdio: StdioOptions {
            shutdown: SHUTDOWN_TIMEOUTS,
            guardian: servers.guardian,
            ..StdioOptions::default()
        },
        http,
        ..ServiceOptions::default()
    };
    // Boxed, because the future is large.
    let service = Box::pin(LocalService::open(settings.home()?.clone(), options)).await?;
    if is_added {
        // To the manager only: the logs of the service are those of configured servers that run in
        // this process.
        service.manager().upsert_servers(&configs).await?;
    }
    let (context, has_started) = (context.clone(), Cell::new(false));
    let source = servers.source;
    let session = ServerSession { service, configs, source, daemon, context, has_started };
    let outcome = work(&session).await.map_err(|error| session.classify(error));
    // Also after an error, or servers would be left to their guardians.
    session.close().await;
    outcome
}

/// Hint for an ad-hoc server that needs a login; only configured servers keep logins. `None` if a
/// token was given.
pub(crate) fn login_hint(server: &McpServerConfig) -> Option<String> {
    let McpTransport::Http { url, .. } = &server.transport else { return None };
    if server.has_authorization() {
        return None;
    }
    let add = command(format_args!("add NAME {}", without_secrets(url)));
    let login = command("login NAME");
    Some(format!(
        "add it with {add}, then run {login}; or pass a token: `--header 'Authorization: Bearer \
         ${{TOKEN}}'`"
    ))
}

/// Hint for a configured server that rejects the token in its headers, where `login` does not
/// apply.
pub(crate) fn token_hint(server: &McpServerConfig) -> String {
    format!("change the token in its headers with {}", server_command("edit", &server.name))
}

/// Results of a query to several servers.
pub(crate) struct FanOut<T> {
    /// The servers that responded, by name.
    pub(crate) responses: Vec<(String, T)>,
    failures: Vec<(String, CliError)>,
}

impl<T> FanOut<T> {
    /// Prints the list, and returns the overall result.
    pub(crate) fn show(self, list: &List, what: &str, printer: &Printer) -> Result<(), CliError> {
        if !self.responses.is_empty() {
            if list.is_empty() {
                printer.note(format_args!("note: no {what} found"));
            }
            printer.list(list);
        }
        self.close(printer)
    }

    /// The overall result, after everything has been printed.
    pub(crate) fn close(mut self, printer: &Printer) -> Result<(), CliError> {
        let is_interrupted =
            |failure: &(String, CliError)| failure.1.exit_code == ExitCode::Interrupted;
        if let Some(at) = self.failures.iter().position(is_interrupted) {
            // Ctrl-C fails every query at once; one "interrupted" says it all.
            return Err(self.failures.swap_remove(at).1);
        }
        let (n_failed, n_queried) =
            (self.failures.len(), self.failures.len() + self.responses.len());
        if n_queried == 0 {
            let hint = format!("enable one with {}", command("enable NAME"));
            return Err(CliError::config("all configured servers are disabled", hint));
        }
        let Some((_, first)) = self.failures.first() else { return Ok(()) };
        let exit_code = first.exit_code;
        if n_queried == 1 {
            return Err(self.failures.swap_remove(0).1);
        }
        let message =
            format!("{n_failed} of {n_queried} servers failed and are missing from this list");
        let mut error_details = vec![
            ErrorDetail::new(ErrorCode::ServiceUnavailable, message)
                .with_hint("see the error of each server"),
        ];
        // The details go to notes, or with `-o json` into the one error.
        for (server, failure) in self.failures {
            let ErrorDetail { message, hint, code, .. } = failure.summary();
            let hint = hint.unwrap_or_default();
            if printer.output == Output::Json {
                error_details.push(ErrorDetail::new(code, format!("{server}: {message} ({hint})")));
            } else {
                printer.note(format_args!("{server}: {message}\n{server}: hint: {hint}"));
            }
        }
        Err(CliError::from_details(exit_code, error_details))
    }
}

/// Treats an unsupported list as empty.
pub(crate) fn or_empty<T: Default>(outcome: Result<T, CallError>) -> Result<T, CliError> {
    match outcome {
        Err(CallError::Unsupported { .. }) => Ok(T::default()),
        outcome => Ok(outcome?),
    }
}

/// Notes skipped entries and truncated lists.
pub(crate) fn note_truncated<T>(
    listing: &toolrack_client::List<T>,
    what: &str,
    server: &str,
    printer: &Printer,
) {
    let n = toolrack_mcp::n_skipped(&listing.skipped);
    if n > 0 {
        printer.note(format_args!(
            "note: {n} {what} of `{server}` could not be parsed and were \
             skipped"
        ));
    }
    if let Some(cut) = listing.truncated {
        let reason = match cut {
            Truncated::RepeatedCursor => "the server repeats a cursor",
            Truncated::TooManyPages => "too many pages",
            Truncated::TooManyEntries => "too many entries",
            Truncated::TooManyBytes => "too many bytes",
            _ => "too long",
        };
        printer
            .note(format_args!("note: the list of {what} of `{server}` is incomplete: {reason}"));
    }
}

/// A server whose tools are not listed, by name.
pub(crate) type UnlistedServer = (String, UnlistedReason);

/// Why a server's tools are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnlistedReason {
    NotQueried,
    /// Stopped by the user.
    Stopped,
    /// The last start failed.
    Failed,
}

/// Notes which servers' tools are not listed.
pub(crate) fn note_unlisted(unlisted: &[UnlistedServer], printer: &Printer) {
    for (reason, names, advice) in group_by_reason(unlisted) {
        let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
        printer.note(format_args!("note: not listed ({reason}): {names}{advice}"));
    }
}

/// Hint for an unknown tool: it may belong to a server that is not running.
pub(crate) fn unlisted_hint(unlisted: &[UnlistedServer]) -> Option<String> {
    let groups = group_by_reason(unlisted).into_iter();
    let idle = groups.filter_map(|(reason, names, advice)| {
        advice.map(|advice| format!("{reason}: {names}; {advice}"))
    });
    let idle: Vec<String> = idle.collect();
    (!idle.is_empty()).then(|| idle.join("; "))
}

/// The reasons, each with the names of its servers and what to run next.
fn group_by_reason(unlisted: &[UnlistedServer]) -> Vec<(&'static str, String, Option<String>)> {
    let reasons = [
        (UnlistedReason::Stopped, "stopped", Some(("start it with", "start"))),
        (UnlistedReason::Failed, "failed", Some(("see why with", "doctor"))),
        (UnlistedReason::NotQueried, "not queried yet", None),
    ];
    let group = |(reason, word, next): (UnlistedReason, _, Option<(&str, &str)>)| {
        let same = unlisted.iter().filter(|(_, of_server)| *of_server == reason);
        let names: Vec<&str> = same.map(|(name, _)| name.as_str()).collect();
        let advice = next.map(|(purpose, verb)| match names.as_slice() {
            [name] => format!("{purpose} {}", server_command(verb, name)),
            _ => format!("{purpose} {}", server_command(verb, "NAME")),
        });
        (!names.is_empty()).then(|| (word, names.join(", "), advice))
    };
    reasons.into_iter().filter_map(group).collect()
}

/// Outcome of the last recorded start.
pub(crate) fn last_outcome(lines: Vec<LogLine>) -> Option<LogLine> {
    let is_outcome = |line: &LogLine| {
        matches!(line.kind, LogKind::Ready | LogKind::Failure | LogKind::NeedsLogin)
    };
    lines.into_iter().rev().find(is_outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unlisted: &[(&str, UnlistedReason)], expected: Option<&str>) {
        let unlisted = unlisted.iter().map(|(name, reason)| ((*name).to_owned(), *reason));
        assert_eq!(unlisted_hint(&unlisted.collect::<Vec<_>>()).as_deref(), expected);
    }

    #[test]
    fn unlisted_servers_are_hinted() {
        check(&[], None);
        check(&[("a", UnlistedReason::NotQueried)], None);
        check(
            &[("a", UnlistedReason::Stopped), ("b", UnlistedReason::NotQueried)],
            Some("stopped: a; start it with `toolrack start a`"),
        );
        check(
            &[
                ("a", UnlistedReason::Stopped),
                ("b", UnlistedReason::Stopped),
                ("c", UnlistedReason::Failed),
            ],
            Some(
                "stopped: a, b; start it with `toolrack start NAME`; failed: c; \
                 see why with `toolrack doctor c`",
            ),
        );
    }
}
