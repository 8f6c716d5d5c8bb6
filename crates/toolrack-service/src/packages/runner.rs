//! Who runs the commands of an installation.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use toolrack_manager::{Failure, FailureKind, Installation, with_causes};
use toolrack_stdio::{Finished, Inheritance, McpServerDef, Run, StdioOptions, run};
use toolrack_transport::{SpawnFault, TransportError};

/// Where package managers and their version managers keep their settings. Servers do not get these, because
/// tokens are among them.
const SETTINGS: &[&str] =
    &["npm_config_", "NPM_CONFIG_", "PIP_", "UV_", "PYENV_", "NVM_", "VOLTA_", "ASDF_", "MISE_"];

/// The clock of an installation is its owner's; this only keeps a forgotten one from going on forever.
const LIMIT: Duration = Duration::from_hours(24);

/// Runs commands for one installation.
pub(super) struct Worker<'a> {
    pub(super) env: &'a HashMap<String, String>,
    pub(super) installation: &'a Installation,
}

impl Worker<'_> {
    /// Runs a step of an installation, and passes on what it says.
    pub(super) async fn run(
        &self,
        program: &str,
        args: &[String],
        cwd: Option<&Path>,
    ) -> Result<Finished, Failure> {
        self.execute(program, args, (cwd, LIMIT), &|line| self.installation.say(line)).await
    }

    /// Asks a program something that it knows at once.
    pub(super) async fn ask(
        &self,
        program: &str,
        args: &[&str],
        limit: Duration,
    ) -> Result<Finished, Failure> {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        self.execute(program, &args, (None, limit), &|_line| {}).await
    }

    async fn execute(
        &self,
        program: &str,
        args: &[String],
        (cwd, limit): (Option<&Path>, Duration),
        heard: &(dyn Fn(&str) + Sync),
    ) -> Result<Finished, Failure> {
        let definition = McpServerDef {
            command: program.to_owned(),
            args: args.to_vec(),
            env: self.env.clone(),
            cwd: cwd.map(Path::to_owned),
        };
        let given = self.installation.stdio();
        let inherit_env = match given.inherit_env {
            Inheritance::Everything => Inheritance::Everything,
            _ => Inheritance::ListedAnd(SETTINGS),
        };
        let options = StdioOptions { inherit_env, farewell: None, ..given.clone() };
        let how = Run { options: &options, limit, stop: self.installation.stop(), heard };
        run(&definition, how).await.map_err(|error| refused(program, &error))
    }
}

fn refused(program: &str, error: &TransportError) -> Failure {
    let kind = match error {
        TransportError::Spawn(SpawnFault::NotFound { .. } | SpawnFault::NoSuchFile(_)) => {
            FailureKind::MissingTool
        }
        TransportError::Shutdown => FailureKind::Stopped,
        TransportError::Timeout(_) => FailureKind::InstallTimedOut,
        _ => FailureKind::InstallFailed,
    };
    Failure::new(kind, format!("`{program}` could not be run to its end: {}", with_causes(error)))
}
