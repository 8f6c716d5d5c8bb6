//! Servers put to use: the one place that knows what stands between a command and a server.
//!
//! **Invariant:** nothing is started that was not asked for, and once [`Rack::close`] returns, whatever was started
//! has ended or is left to its guardian.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;
use toolrack::Environment;
use toolrack_client::CallOptions;
use toolrack_config::{Lookup, McpServerConfig, McpTransport, StartMode, interpolate};
use toolrack_http::HttpOptions;
use toolrack_manager::{
    ConnectionState, McpConnection, McpManager, RackError, RackEvent, RackEvents, ToolWithServer,
};
use toolrack_mcp::Tool;
use toolrack_rpc::RawJson;
use toolrack_stdio::{Ladder, StdioOptions};

use crate::arguments::tool::ConductOptions;
use crate::failure::Failure;
use crate::progress::Live;
use crate::question::Questions;
use crate::settings::{self, Talk};
use crate::surroundings::Surroundings;
use crate::target::{Kind, Servers, faults_of};
use crate::verdict::Verdict;

/// A person waits for the prompt of the shell, so servers that do not leave are pushed sooner than by a daemon.
const LADDER: Ladder =
    Ladder { close: Duration::from_secs(1), terminate: Duration::from_millis(700) };
/// How long the end of all servers is waited for. Their guardians go on without us.
const CLOSING: Duration = Duration::from_millis(2500);

/// Servers, none of which is started before it is asked for.
pub(crate) struct Rack {
    manager: McpManager,
    configs: Vec<McpServerConfig>,
    kind: Kind,
    lookup: Arc<dyn Lookup + Send + Sync>,
    surroundings: Surroundings,
}

impl Rack {
    /// Makes servers ready to be started. Has to be called within a runtime.
    pub(crate) fn open(
        servers: Servers,
        questions: Option<Questions>,
        surroundings: &Surroundings,
    ) -> Self {
        let lookup: Arc<dyn Lookup + Send + Sync> =
            Arc::new(Environment::of_process().beginning_at(servers.dir));
        let mut builder = McpManager::builder()
            .names(servers.names)
            .lookup(Arc::clone(&lookup))
            .stdio(StdioOptions { ladder: LADDER, ..StdioOptions::default() });
        if servers.configs.iter().any(is_remote) {
            let proxy = settings::proxies();
            builder = builder.http(HttpOptions { proxy, ..HttpOptions::default() });
        }
        if let Some(dir) = surroundings.settings.home.catalog_dir() {
            builder = builder.catalog(dir);
        }
        if let Some(questions) = questions {
            builder = builder.handler(Arc::new(questions));
        }
        Self {
            manager: builder.build(servers.configs.clone()),
            configs: servers.configs,
            kind: servers.kind,
            lookup,
            surroundings: surroundings.clone(),
        }
    }

    pub(crate) fn configs(&self) -> &[McpServerConfig] {
        &self.configs
    }

    /// Lists the tools that are remembered. Nothing is started for that.
    pub(crate) async fn recall(&self) -> Result<(), Failure> {
        let known = self.configs.iter().filter(|it| it.enabled && self.is_known(&it.name));
        // A lazy server whose tools are remembered is listed without being started.
        let lazy = known.map(|it| McpServerConfig { start: StartMode::Lazy, ..it.clone() });
        self.manager.reconcile(&[], &lazy.collect::<Vec<_>>()).await?;
        Ok(())
    }

    /// Starts or reaches a server and waits until it can be used.
    pub(crate) async fn connect(&self, name: &str) -> Result<Arc<McpConnection>, Failure> {
        let Some(config) = self.configs.iter().find(|it| it.name == name) else {
            return Err(self.manager.server(name).err().unwrap_or(RackError::Closed).into());
        };
        if !config.enabled {
            return Err(not_connected(name, &ConnectionState::Disabled));
        }
        interpolate(config, &*self.lookup).map_err(|faults| match self.kind {
            Kind::Configured => faults_of(&faults, Verdict::Config, "set it, or change the config"),
            Kind::Typed => faults_of(&faults, Verdict::Usage, "check what was typed"),
        })?;
        let live = Live::new(&self.surroundings.printer);
        live.phase(&phase(config));
        let connecting = async { Ok(self.manager.connect(name, config.clone()).await?) };
        let connection = live.during(self.attended(connecting)).await?;
        match connection.state() {
            ConnectionState::Connected => Ok(connection),
            state => Err(not_connected(name, state)),
        }
    }

    /// Calls a tool and gives its result as the server wrote it.
    pub(crate) async fn call(
        &self,
        (server, tool): (&str, &str),
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, Failure> {
        let call =
            async { Ok(self.manager.call_tool_raw(server, tool, arguments, options).await?) };
        self.attended(call).await
    }

    /// Every tool that is known and not denied, without asking anybody.
    pub(crate) fn tools(&self) -> Arc<[ToolWithServer]> {
        self.manager.all_tools()
    }

    /// A tool by any of its names, as far as tools are known.
    pub(crate) fn find(&self, typed: &str) -> Option<ToolWithServer> {
        self.manager.find_tool(typed)
    }

    /// A tool as its server describes it, denied or not, as far as tools are known.
    pub(crate) fn tool(&self, server: &str, tool: &str) -> Option<Tool> {
        let connection = self.manager.server(server).ok()?;
        connection.listing()?.items.iter().find(|it| it.name == tool).cloned()
    }

    /// Whether a tool is known and not denied.
    pub(crate) fn has_tool(&self, server: &str, tool: &str) -> bool {
        self.tools().iter().any(|it| **it.server() == *server && it.tool().name == tool)
    }

    /// Whether the tools of a server are known, running or not.
    pub(crate) fn is_known(&self, server: &str) -> bool {
        self.manager.server(server).is_ok_and(|it| it.listing().is_some())
    }

    /// Waits for something unless the user wants to stop, and passes on what servers say meanwhile.
    pub(crate) async fn attended<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut work = std::pin::pin!(self.surroundings.unless_stopped(work));
        if self.surroundings.printer.talk() != Talk::Verbose {
            return work.await;
        }
        let mut events = self.manager.subscribe();
        loop {
            tokio::select! {
                outcome = &mut work => {
                    self.drain(&mut events).await;
                    return outcome;
                }
                Some(event) = events.next() => self.tell(&event),
            }
        }
    }

    /// What was said before the work was done is told before its outcome.
    async fn drain(&self, events: &mut RackEvents) {
        while let Ok(Some(event)) = timeout(Duration::ZERO, events.next()).await {
            self.tell(&event);
        }
    }

    fn tell(&self, event: &RackEvent) {
        let printer = &self.surroundings.printer;
        match event {
            RackEvent::Stderr { server, line } => printer.note(format_args!("{server}: {line}")),
            RackEvent::State { server, state } => printer.note(format_args!("{server}: {state}")),
            RackEvent::Warning { server: Some(server), message } => {
                printer.note(format_args!("warning: {server}: {message}"));
            }
            RackEvent::Missed(n_lines) => printer.note(format_args!("… {n_lines} lines not shown")),
            _ => {}
        }
    }

    /// Ends every server. What a crash of an earlier run left behind is ended in the same breath.
    pub(crate) async fn close(self) {
        let sweeping = tokio::task::spawn_blocking(toolrack_stdio::sweep);
        let closing = async { tokio::join!(self.manager.close(), sweeping) };
        if timeout(CLOSING, closing).await.is_err() {
            tracing::debug!("a server takes long to end; its guardian goes on");
        }
    }
}

/// Why a server is not connected, with its own reason if it has one.
fn not_connected(name: &str, state: &ConnectionState) -> Failure {
    let general =
        Failure::from(RackError::NotConnected { server: name.to_owned(), state: state.clone() });
    match state.failure() {
        Some(failure) => general.saying(format!("`{name}` is not connected: {failure}")),
        None => general.saying(format!("`{name}` is {state}")),
    }
}

fn is_remote(config: &McpServerConfig) -> bool {
    !matches!(config.transport, McpTransport::Stdio { .. })
}

/// What is being waited for while a server is made ready.
fn phase(config: &McpServerConfig) -> String {
    let name = &config.name;
    match &config.transport {
        McpTransport::Http { .. } => format!("{name}: connecting"),
        McpTransport::Package { .. } => format!("{name}: installing or starting"),
        McpTransport::Stdio { command, .. } => match command.rsplit('/').next() {
            Some("npx" | "uvx" | "bunx" | "pipx" | "docker" | "podman") => {
                format!("{name}: installing or starting")
            }
            _ => format!("{name}: starting"),
        },
        _ => format!("{name}: starting"),
    }
}

/// Uses servers, and ends them whatever comes of it.
pub(crate) async fn with_rack<T>(
    servers: Servers,
    conduct: &ConductOptions,
    surroundings: &Surroundings,
    work: impl AsyncFnOnce(&Rack) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let questions = Questions::new(surroundings, conduct);
    let rack = Rack::open(servers, Some(questions), surroundings);
    let outcome = work(&rack).await;
    rack.close().await;
    outcome
}
