//! The commands, their context and their dispatch.
//!
//! A command takes its parsed options and the [`Context`], prints through the printer, and returns
//! a [`CliError`] if it fails. It does not use clap.

pub(crate) mod add;
pub(crate) mod call;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod keys;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod resources;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod tools;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toolrack_client::EraChoice;

use crate::args::{Command, DaemonAction};
use crate::error::CliError;
use crate::printer::Printer;
use crate::settings::{DaemonUse, Settings};

/// How long to wait for blocking threads, such as a read from stdin, at exit.
const EXIT_WAIT: Duration = Duration::from_millis(150);

/// Runs a command. The first Ctrl-C cancels it and waits for the cleanup; the second exits at once,
/// and guardians stop the servers.
pub(crate) fn run(command: Command, context: &Context) -> Result<(), CliError> {
    if let Command::Daemon(DaemonAction::Start(options)) = &command
        && options.foreground
    {
        return daemon::run(options, context);
    }
    // Ctrl-C belongs to the editor.
    let is_cancellable = !matches!(command, Command::Edit { .. });
    // Boxed, because the futures of the commands are large.
    let mut work: Pin<Box<dyn Future<Output = Result<(), CliError>>>> = match command {
        Command::Tools(options) => Box::pin(tools::tools(options, context)),
        Command::Call(options) => Box::pin(call::call(options, context)),
        Command::Search(options) => Box::pin(tools::search(options, context)),
        Command::Resources(options) => Box::pin(resources::resources(options, context)),
        Command::Read(options) => Box::pin(resources::read(options, context)),
        Command::Prompts(options) => Box::pin(resources::prompts(options, context)),
        Command::Prompt(options) => Box::pin(resources::prompt(options, context)),
        Command::Add(options) => Box::pin(add::add(options, context)),
        Command::AddJson(options) => Box::pin(add::add_json(options, context)),
        Command::List => Box::pin(servers::list(context)),
        Command::Get(options) => Box::pin(servers::get(options, context)),
        Command::Edit { server } => Box::pin(config::edit(server, context)),
        Command::Remove(options) => Box::pin(lifecycle::remove(options.server, context)),
        Command::Enable(options) => Box::pin(lifecycle::enable(options, context)),
        Command::Disable(options) => Box::pin(lifecycle::disable(options.server, context)),
        Command::Start(options) => Box::pin(lifecycle::start(options.server, "start", context)),
        Command::Stop(options) => Box::pin(lifecycle::stop(options.server, context)),
        Command::Restart(options) => Box::pin(lifecycle::start(options.server, "restart", context)),
        Command::Status(options) => Box::pin(servers::status(options, context)),
        Command::Logs(options) => Box::pin(logs::logs(options, context)),
        Command::Login(options) => Box::pin(credentials::login(options, context)),
        Command::Logout(options) => Box::pin(credentials::logout(options.server, context)),
        Command::Secret(action) => Box::pin(credentials::secret(action, context)),
        Command::Key(action) => Box::pin(keys::key(action, context)),
        Command::Import(options) => Box::pin(import::import(options, context)),
        Command::Config(action) => Box::pin(ready(config::config(action, context))),
        Command::Doctor { server } => Box::pin(doctor::doctor(server, context)),
        Command::Daemon(action) => Box::pin(daemon::daemon(action, context)),
        Command::Serve(options) => Box::pin(serve::serve(options, context)),
        Command::Dashboard(options) => Box::pin(daemon::dashboard(options, context)),
        Command::History(options) => Box::pin(logs::history(options, context)),
        Command::Demo { legacy: true } => Box::pin(demo::demo(EraChoice::Legacy, context)),
        Command::Demo { legacy: false } => Box::pin(demo::demo(EraChoice::Auto, context)),
        Command::Completion { shell } => Box::pin(completion::completion(shell, context)),
        Command::Complete { words } => Box::pin(completion::complete(words, context)),
    };
    let work = async {
        // Also for `edit`: with a handler installed, Ctrl-C does not end this process.
        let mut signals = signal(SignalKind::interrupt())?;
        tokio::select! {
            outcome = &mut work => return outcome,
            _ = signals.recv(), if is_cancellable => context.cancellation.cancel(),
        }
        context.printer.note("stopping; press Ctrl-C again to exit immediately");
        tokio::select! {
            outcome = &mut work => outcome,
            _ = signals.recv() => Err(CliError::interrupted().with_message("interrupted twice".to_owned())),
        }
    };
    // A single thread suffices: servers are separate processes, and calls mostly wait.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // Not a plain drop, which would wait for a blocking read of stdin until the user presses Enter.
    runtime.shutdown_timeout(EXIT_WAIT);
    outcome
}

/// Context of a command.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) printer: Arc<Printer>,
    /// Cancelled by Ctrl-C.
    pub(crate) cancellation: CancellationToken,
}

impl Context {
    /// The same context, without the daemon.
    pub(crate) fn without_daemon(&self) -> Self {
        let mut settings = Settings::clone(&self.settings);
        settings.daemon = DaemonUse::Never;
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// Runs `work` until Ctrl-C.
    ///
    /// # Cancel safety
    ///
    /// Ctrl-C drops `work` at its next await point.
    pub(crate) async fn run_cancellable<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            biased;
            // First, so that Ctrl-C wins over a result that arrives at the same time.
            () = self.cancellation.cancelled() => Err(CliError::interrupted()),
            outcome = work => outcome,
        }
    }

    /// Waits, until Ctrl-C.
    pub(crate) async fn sleep(&self, duration: Duration) -> Result<(), CliError> {
        let waiting = async {
            tokio::time::sleep(duration).await;
            Ok(())
        };
        self.run_cancellable(waiting).await
    }

    /// Runs blocking work, such as reading a pipe, on another thread until Ctrl-C. The thread
    /// itself is not stopped.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, CliError> {
        let work = tokio::task::spawn_blocking(work);
        self.run_cancellable(async { work.await.map_err(std::io::Error::from)? }).await
    }
}
