//! A launch spec: a definition with everything looked up, ready for the system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use toolrack_transport::SpawnFault;

use crate::environment::environment;
use crate::options::{Farewell, McpServerDef, StdioOptions};
use crate::process_tag;
use crate::which;

/// What is started, exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchSpec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    /// The program and the arguments of [`StdioOptions::farewell`], or nothing.
    pub(crate) farewell: Vec<OsString>,
}

impl LaunchSpec {
    /// Looks everything up. `mark` is put into the environment, so that the processes of this launch
    /// can be recognized later.
    pub(crate) fn resolve(
        definition: &McpServerDef,
        options: &StdioOptions,
        mark: &str,
    ) -> Result<Self, SpawnFault> {
        if let Some(dir) = definition.cwd.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(SpawnFault::BadDirectory(dir.to_owned()));
        }
        let mut env = environment(std::env::vars_os(), &definition.env, options.inherit_env);
        env.retain(|(name, _)| name != process_tag::VARIABLE);
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let dir = definition.cwd.as_deref();
        let program = which::find(&definition.command, path, dir)?;
        let mut farewell = Vec::new();
        if let Some(Farewell { command, args }) = &options.farewell {
            farewell.push(which::find(command, path, dir)?.into_os_string());
            farewell.extend(args.iter().map(OsString::from));
        }
        env.push((process_tag::VARIABLE.into(), mark.into()));
        let spec = Self {
            program,
            args: definition.args.iter().map(OsString::from).collect(),
            env,
            cwd: definition.cwd.clone(),
            farewell,
        };
        spec.refuse_zero_bytes()?;
        Ok(spec)
    }

    fn refuse_zero_bytes(&self) -> Result<(), SpawnFault> {
        let has_zero = |text: &OsStr| memchr::memchr(0, text.as_bytes()).is_some();
        let mut fields = self
            .args
            .iter()
            .enumerate()
            .map(|(index, arg)| (format!("args[{index}]"), arg.as_os_str()))
            .chain(self.env.iter().flat_map(|(name, value)| {
                let field = format!("env.{}", name.display());
                [(field.clone(), name.as_os_str()), (field, value.as_os_str())]
            }));
        match fields.find(|(_, text)| has_zero(text)) {
            Some((field, _)) => Err(SpawnFault::ZeroByte { field: field.replace('\0', "␀") }),
            None => Ok(()),
        }
    }
}
