//! Launch spec: a server definition with its program, arguments and environment resolved.
//!
//! Programs are looked up before anything starts, so that an error can name the missing one.
//!
//! **Invariant:** a variable that is neither on the allowlist nor in the definition does not reach the server, unless the
//! whole environment is inherited.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use toolrack_transport::SpawnError;

use crate::options::{CleanupCommand, McpServerDef, StdioOptions};
use crate::orphan_cleanup::TAG_VARIABLE;

/// A resolved launch.
// `OsString` and not `PathBuf`, which serializes only if it is UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchSpec {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<OsString>,
    /// The program and arguments of [`StdioOptions::cleanup`], or empty.
    pub(crate) cleanup: Vec<OsString>,
}

impl LaunchSpec {
    /// Resolves a definition. `tag` is added to the environment, so that orphan cleanup can recognize the processes.
    pub(crate) fn resolve(
        definition: &McpServerDef,
        options: &StdioOptions,
        tag: &str,
    ) -> Result<Self, SpawnError> {
        if let Some(dir) = definition.cwd.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(SpawnError::InvalidWorkingDir(dir.to_owned()));
        }
        let mut env = environment(std::env::vars_os(), &definition.env, options.inherit_env);
        // A tag from elsewhere would name another owner.
        env.retain(|(name, _)| name != TAG_VARIABLE);
        // The program is looked up in the PATH of the server, which may differ from ours.
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let dir = definition.cwd.as_deref();
        let program = find(&definition.command, path, dir)?.into_os_string();
        let mut cleanup = Vec::new();
        if let Some(CleanupCommand { command, args }) = &options.cleanup {
            cleanup.push(find(command, path, dir)?.into_os_string());
            cleanup.extend(args.iter().map(OsString::from));
        }
        env.push((TAG_VARIABLE.into(), tag.into()));
        let spec = Self {
            program,
            args: definition.args.iter().map(OsString::from).collect(),
            env,
            cwd: definition.cwd.clone().map(PathBuf::into_os_string),
            cleanup,
        };
        spec.reject_nul_bytes()?;
        Ok(spec)
    }

    /// The command that starts the server with its three pipes.
    pub(crate) fn server_command(&self, [stdin, stdout, stderr]: [OwnedFd; 3]) -> Command {
        let mut command = self.command(&self.program, &self.args);
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
        if let Some(dir) = &self.cwd {
            command.current_dir(dir);
        }
        command
    }

    /// The cleanup command, if there is one.
    pub(crate) fn cleanup_command(&self) -> Option<Command> {
        let (program, args) = self.cleanup.split_first()?;
        let mut command = self.command(program, args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(command)
    }

    /// A command with the environment of the server.
    fn command(&self, program: &OsStr, args: &[OsString]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "this is where servers are started")]
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn reject_nul_bytes(&self) -> Result<(), SpawnError> {
        let has_nul = |text: &OsStr| memchr::memchr(0, text.as_bytes()).is_some();
        let mut fields = self
            .args
            .iter()
            .enumerate()
            .map(|(index, arg)| (format!("args[{index}]"), arg.as_os_str()))
            .chain(self.env.iter().flat_map(|(name, value)| {
                let field = format!("env.{}", name.display());
                [(field.clone(), name.as_os_str()), (field, value.as_os_str())]
            }));
        match fields.find(|(_, text)| has_nul(text)) {
            Some((field, _)) => Err(SpawnError::NulByte { field: field.replace('\0', "␀") }),
            None => Ok(()),
        }
    }
}

/// Inherited variables: those that programs need for their files, the user's locale and the network.
const ENV_ALLOWLIST: &[&str] = &[
    "ALL_PROXY",
    "COLORTERM",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Prefixes of inherited variables: locale settings, and the registries of package managers (without their tokens,
/// which have other names).
const ENV_ALLOWLIST_PREFIXES: &[&str] =
    &["LC_", "npm_config_registry", "npm_config_cache", "UV_INDEX_URL", "PIP_INDEX_URL"];

/// How much of our environment a server inherits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EnvInheritance {
    /// The allowlist: variables that programs need for their files, the locale and the network.
    #[default]
    Allowlist,
    /// The allowlist, and every variable with one of these prefixes.
    AllowlistAnd(&'static [&'static str]),
    /// Everything, including secrets.
    All,
}

/// The environment of a server. Variables of its definition override inherited ones.
pub(crate) fn environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    defined: &HashMap<String, String>,
    inheritance: EnvInheritance,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = inherited
        .into_iter()
        .filter(|(name, _)| is_inherited(name, inheritance))
        .filter(|(name, _)| name.to_str().is_none_or(|name| !defined.contains_key(name)))
        .collect();
    variables.extend(defined.iter().map(|(name, value)| (name.into(), value.into())));
    variables
}

fn is_inherited(name: &OsStr, inheritance: EnvInheritance) -> bool {
    let more = match inheritance {
        EnvInheritance::Allowlist => &[],
        EnvInheritance::AllowlistAnd(prefixes) => prefixes,
        EnvInheritance::All => return true,
    };
    name.to_str().is_some_and(|name| {
        let mut prefixes = ENV_ALLOWLIST_PREFIXES.iter().chain(more);
        ENV_ALLOWLIST.contains(&name) || prefixes.any(|prefix| name.starts_with(prefix))
    })
}

/// Names of our variables that a server does not inherit. Those without a value are as good as unset.
pub fn withheld_variables(inheritance: EnvInheritance) -> Vec<String> {
    let ours = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let withheld = ours.filter(|(name, _)| !is_inherited(name, inheritance));
    withheld.filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// The search path without a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds the executable file of `command`. A name is looked up in `path`, or in our own `PATH` by default, and never in
/// the working directory.
pub fn find_program(command: &str, path: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    let own_path = std::env::var_os("PATH");
    find(command, path.or(own_path.as_deref()), None)
}

/// Finds the executable file of `command`. A name is looked up in `path`, never in the working directory; a path is
/// relative to `cwd`.
pub(crate) fn find(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<PathBuf, SpawnError> {
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return check_executable(file);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut not_executable = None;
    for dir in std::env::split_paths(path).filter(|dir| dir.is_absolute()) {
        match check_executable(dir.join(command)) {
            Ok(file) => return Ok(file),
            // Like a shell, go on searching, and report this file only if there is no other.
            Err(SpawnError::NotExecutable(file)) if !file.is_dir() => not_executable = Some(file),
            Err(_missing) => {}
        }
    }
    Err(match not_executable {
        Some(file) => SpawnError::NotExecutable(file),
        None => SpawnError::NotFound {
            program: command.to_owned(),
            path: path.to_string_lossy().into_owned(),
        },
    })
}

fn check_executable(file: PathBuf) -> Result<PathBuf, SpawnError> {
    match fs::metadata(&file) {
        Err(_missing) => Err(SpawnError::NoSuchFile(file)),
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {
            Ok(file)
        }
        Ok(_) => Err(SpawnError::NotExecutable(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_environment(inheritance: EnvInheritance, defined: &[(&str, &str)], expected: &[&str]) {
        let own = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("A", "1")];
        let defined = defined.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut found: Vec<String> =
            environment(own.map(|(n, v)| (n.into(), v.into())), &defined.collect(), inheritance)
                .into_iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_allowlisted_and_configured_variables_are_passed() {
        check_environment(EnvInheritance::Allowlist, &[], &["LC_ALL=C", "PATH=/bin"]);
        check_environment(
            EnvInheritance::Allowlist,
            &[("TOKEN", "t")],
            &["LC_ALL=C", "PATH=/bin", "TOKEN=t"],
        );
        check_environment(
            EnvInheritance::Allowlist,
            &[("PATH", "/opt")],
            &["LC_ALL=C", "PATH=/opt"],
        );
        check_environment(
            EnvInheritance::AllowlistAnd(&["AWS_"]),
            &[],
            &["AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
        check_environment(
            EnvInheritance::All,
            &[("A", "2")],
            &["A=2", "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
    }

    #[test]
    fn program_lookup_finds_or_explains() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tool");
        let plain = dir.path().join("data");
        for file in [&program, &plain] {
            fs::copy("/bin/true", file).unwrap();
        }
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        let path = std::env::join_paths(["/nowhere".as_ref(), dir.path()]).unwrap();
        let lookup = |command: &str| match find(command, Some(&path), Some(dir.path())) {
            Ok(file) => file.display().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(lookup("tool"), program.display().to_string());
        assert_eq!(lookup("./tool"), dir.path().join("./tool").display().to_string());
        assert_eq!(lookup("data"), format!("`{}` is not an executable program", plain.display()));
        assert_eq!(
            lookup("missing"),
            format!("program `missing` not found in PATH ({})", path.display())
        );
        assert_eq!(lookup("/nowhere/x"), "program `/nowhere/x` does not exist");
        assert_eq!(
            lookup("./"),
            format!("`{}` is not an executable program", dir.path().join("./").display())
        );
    }
}
