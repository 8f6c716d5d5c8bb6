//! A launch spec: a definition with everything looked up, ready for the system.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toolrack_transport::SpawnFault;

use crate::options::{Farewell, McpServerDef, StdioOptions};
use crate::orphan_cleanup::VARIABLE;

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
        env.retain(|(name, _)| name != VARIABLE);
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let dir = definition.cwd.as_deref();
        let program = find(&definition.command, path, dir)?;
        let mut farewell = Vec::new();
        if let Some(Farewell { command, args }) = &options.farewell {
            farewell.push(find(command, path, dir)?.into_os_string());
            farewell.extend(args.iter().map(OsString::from));
        }
        env.push((VARIABLE.into(), mark.into()));
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

/// What programs need to find their files, speak the user's language and reach the network.
const PASSED_ON: &[&str] = &[
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

/// Families of names that are passed on as a whole: locale settings, and where package managers get
/// their packages from (without their tokens, which have other names).
const PASSED_ON_PREFIXES: &[&str] =
    &["LC_", "npm_config_registry", "npm_config_cache", "UV_INDEX_URL", "PIP_INDEX_URL"];

/// How much of our environment a server gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// The short list: what programs need to find their files and reach the network.
    #[default]
    Listed,
    /// The short list, and every variable whose name begins with one of these.
    ListedAnd(&'static [&'static str]),
    /// All of it, secrets included.
    Everything,
}

/// The variables of a server, from ours and its own. Its own win.
pub(crate) fn environment(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &HashMap<String, String>,
    inheritance: Inheritance,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = ours
        .into_iter()
        .filter(|(name, _)| is_passed_on(name, inheritance))
        .filter(|(name, _)| name.to_str().is_none_or(|name| !own.contains_key(name)))
        .collect();
    variables.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    variables
}

fn is_passed_on(name: &OsStr, inheritance: Inheritance) -> bool {
    let more = match inheritance {
        Inheritance::Listed => &[],
        Inheritance::ListedAnd(prefixes) => prefixes,
        Inheritance::Everything => return true,
    };
    name.to_str().is_some_and(|name| {
        let mut prefixes = PASSED_ON_PREFIXES.iter().chain(more);
        PASSED_ON.contains(&name) || prefixes.any(|it| name.starts_with(it))
    })
}

/// Where a shell would look without a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The file that `command` stands for. A name is looked up in `path`, or in our own if there is none, and
/// never in the working directory.
pub fn find_program(command: &str, path: Option<&OsStr>) -> Result<PathBuf, SpawnFault> {
    let ours = std::env::var_os("PATH");
    find(command, path.or(ours.as_deref()), None)
}

/// The file that `command` stands for. A name is looked up in `path`, never in the working
/// directory; a path is taken from `cwd`.
pub(crate) fn find(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<PathBuf, SpawnFault> {
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return check(file);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut blocked = None;
    for dir in std::env::split_paths(path).filter(|dir| dir.is_absolute()) {
        match check(dir.join(command)) {
            Ok(file) => return Ok(file),
            Err(SpawnFault::NotExecutable(file)) if !file.is_dir() => blocked = Some(file),
            Err(_missing) => {}
        }
    }
    Err(match blocked {
        Some(file) => SpawnFault::NotExecutable(file),
        None => SpawnFault::NotFound {
            program: command.to_owned(),
            path: path.to_string_lossy().into_owned(),
        },
    })
}

fn check(file: PathBuf) -> Result<PathBuf, SpawnFault> {
    match fs::metadata(&file) {
        Err(_missing) => Err(SpawnFault::NoSuchFile(file)),
        Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => Ok(file),
        Ok(_) => Err(SpawnFault::NotExecutable(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_environment(inheritance: Inheritance, own: &[(&str, &str)], expected: &[&str]) {
        let ours = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("A", "1")];
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut found: Vec<String> =
            environment(ours.map(|(n, v)| (n.into(), v.into())), &own.collect(), inheritance)
                .into_iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_is_listed_or_named_reaches_the_server() {
        check_environment(Inheritance::Listed, &[], &["LC_ALL=C", "PATH=/bin"]);
        check_environment(
            Inheritance::Listed,
            &[("TOKEN", "t")],
            &["LC_ALL=C", "PATH=/bin", "TOKEN=t"],
        );
        check_environment(Inheritance::Listed, &[("PATH", "/opt")], &["LC_ALL=C", "PATH=/opt"]);
        check_environment(
            Inheritance::ListedAnd(&["AWS_"]),
            &[],
            &["AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
        check_environment(
            Inheritance::Everything,
            &[("A", "2")],
            &["A=2", "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
    }

    #[test]
    fn a_program_is_found_or_named() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tool");
        let plain = dir.path().join("data");
        for file in [&program, &plain] {
            fs::copy("/bin/true", file).unwrap();
        }
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        let path = std::env::join_paths(["/nowhere".as_ref(), dir.path()]).unwrap();
        let look = |command: &str| match find(command, Some(&path), Some(dir.path())) {
            Ok(file) => file.display().to_string(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(look("tool"), program.display().to_string());
        assert_eq!(look("./tool"), dir.path().join("./tool").display().to_string());
        assert_eq!(look("data"), format!("`{}` is not an executable program", plain.display()));
        assert_eq!(
            look("missing"),
            format!("program `missing` was not found in PATH ({})", path.display())
        );
        assert_eq!(look("/nowhere/x"), "program `/nowhere/x` does not exist");
        assert_eq!(
            look("./"),
            format!("`{}` is not an executable program", dir.path().join("./").display())
        );
    }
}
