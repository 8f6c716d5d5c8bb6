//! Settings of every command, resolved from options, environment variables and defaults, in this
//! order.
//!
//! Everything else is left to the config of each server.
//!
//! **Invariant:** the environment is read only through [`Variable`], so the documented table is
//! complete.

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::ValueEnum;
use toolrack_http::ProxySettings;
use toolrack_service::{ErrorCode, ErrorDetail, Home, InsecureHome, InsecurePath, insecure_paths};

use crate::args::GlobalOptions;
use crate::error::{CliError, ExitCode};
use crate::printer::Output;

/// Settings of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Config file and data directory, if known.
    home: Option<Home>,
    /// Whether a home is used that other users can change.
    pub(crate) insecure_home: InsecureHome,
    /// What other users can change, once the home was asked for.
    insecure_paths: OnceLock<Vec<InsecurePath>>,
    /// Whether the config file was named explicitly, and so must exist.
    pub(crate) has_explicit_config: bool,
    pub(crate) output: Output,
    pub(crate) verbosity: Verbosity,
    pub(crate) has_colors: bool,
    /// Total timeout of a request; the config decides otherwise.
    pub(crate) timeout: Option<Duration>,
    /// Selected agent, whose servers are added to the shared ones.
    pub(crate) agent: Option<String>,
    pub(crate) streams: StdStreams,
    pub(crate) daemon: DaemonUse,
    /// Address that a new daemon listens on; a default otherwise.
    pub(crate) listen: Option<Listen>,
}

/// Use of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonUse {
    /// Use a running daemon, and start one where required.
    Auto,
    /// Use a running daemon, but never start one.
    NoAutostart,
    /// Ignore the daemon.
    Never,
}

/// Where the daemon listens, besides its Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Addr(SocketAddr),
    /// On its Unix socket only.
    None,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::None => f.write_str("none"),
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let addr: Option<SocketAddr> = text.parse().ok();
        addr.map(Self::Addr).ok_or_else(|| {
            "expected an address with a port, e.g. `127.0.0.1:7733`, or `none`".to_owned()
        })
    }
}

/// How much is printed besides data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    Normal,
    /// Also the servers' stderr and log messages.
    Verbose,
}

/// Environment variables that are read, with their names and descriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Variable {
    /// directory for the config file and all data
    ToolrackHome,
    /// config file, like `--config`
    ToolrackConfig,
    /// output format, like `--output`
    ToolrackOutput,
    /// total timeout of a request, like `--timeout`
    ToolrackTimeout,
    /// agent whose servers are used, like `--agent`
    ToolrackAgent,
    /// if set and not empty, use a home that other users can change, like `--allow-insecure-home`
    ToolrackAllowInsecureHome,
    /// if set and not empty, don't use the daemon, like `--no-daemon`
    ToolrackNoDaemon,
    /// if set and not empty, don't start a daemon automatically
    ToolrackNoAutostart,
    /// address that a daemon listens on, like `toolrack daemon start --listen`
    ToolrackListen,
    /// key for `toolrack key check`
    ToolrackKey,
    /// base directory of `toolrack/toolrack.toml` [default: `~/.config`]
    XdgConfigHome,
    /// base directory of the data in `toolrack/` [default: `~/.local/share`, or `~/Library/Application Support` on macOS]
    XdgDataHome,
    /// home directory
    Home,
    /// if set and not empty, disable colors
    NoColor,
    /// `dumb` disables colors and progress lines
    Term,
    /// editor for `toolrack edit`; takes precedence over `EDITOR`
    Visual,
    /// editor for `toolrack edit` [default: `vi`]
    Editor,
    /// browser for logins and the dashboard
    Browser,
    /// proxy for `http` URLs; the lowercase name takes precedence
    HttpProxy,
    /// proxy for `https` URLs
    HttpsProxy,
    /// proxy for both
    AllProxy,
    /// comma-separated hosts to reach without a proxy
    NoProxy,
}

impl Variable {
    /// Proxy variables. Their lowercase names take precedence.
    const PROXIES: [Self; 4] = [Self::HttpProxy, Self::HttpsProxy, Self::AllProxy, Self::NoProxy];

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Settings {
    /// Config file and data directory. A home that other users can change is refused here, so that
    /// no command reads a file of it.
    pub(crate) fn home(&self) -> Result<&Home, CliError> {
        let home = self.unchecked_home()?;
        let refused = self.insecure_paths().iter().filter(|path| path.exposure.is_refused());
        let refused: Vec<ErrorDetail> = refused.map(insecure_path_error).collect();
        if refused.is_empty() || self.insecure_home == InsecureHome::Allow {
            return Ok(home);
        }
        Err(CliError::from_details(ExitCode::Config, refused))
    }

    /// The same for the commands that report what is wrong with it.
    pub(crate) fn unchecked_home(&self) -> Result<&Home, CliError> {
        self.home.as_ref().ok_or_else(|| {
            let hint = "set `HOME`, or set `TOOLRACK_HOME` to a directory for config and data";
            CliError::config("cannot determine the config directory", hint)
        })
    }

    /// Paths of the home that other users can change.
    pub(crate) fn insecure_paths(&self) -> &[InsecurePath] {
        let check = || self.home.as_ref().map(insecure_paths).unwrap_or_default();
        self.insecure_paths.get_or_init(check)
    }
}

/// The error of a path that other users can change.
pub(crate) fn insecure_path_error(insecure: &InsecurePath) -> ErrorDetail {
    let hint = format!(
        "run `{}` after a look at its content, or use `--allow-insecure-home`",
        insecure.repair_command()
    );
    ErrorDetail::new(ErrorCode::Denied, insecure.to_string()).with_hint(hint)
}

/// The home directory from the environment, with an explicit config file.
fn home(
    config: Option<PathBuf>,
    set: &dyn Fn(Variable) -> Option<OsString>,
) -> Result<Option<Home>, CliError> {
    let named = |name: &str| set(Variable::from_str(name, false).ok()?);
    let home = match Home::from_env(named) {
        Ok(home) => home,
        Err(error) if set(Variable::ToolrackHome).is_some() => return Err(error.into()),
        Err(_nowhere) => return Ok(None),
    };
    Ok(Some(match config {
        Some(file) => Home::new(file, home.dir()),
        None => home,
    }))
}

/// Proxy settings from the environment.
pub(crate) fn proxies() -> ProxySettings {
    let names = Variable::PROXIES.iter().flat_map(|variable| {
        let name = variable.name();
        [name.to_ascii_lowercase(), name]
    });
    let value = |name: &str| std::env::var_os(name)?.into_string().ok();
    ProxySettings::from_pairs(names.filter_map(|name| Some((name.clone(), value(&name)?))))
}

/// Reads an environment variable.
pub(crate) fn env_var(variable: Variable) -> Option<OsString> {
    std::env::var_os(variable.name())
}

/// Resolves all settings.
pub(crate) fn resolve(
    options: &GlobalOptions,
    variable: &dyn Fn(Variable) -> Option<OsString>,
    streams: StdStreams,
) -> Result<Settings, CliError> {
    // An empty variable counts as unset, as `NO_COLOR` and the XDG specification say.
    let set = |name: Variable| variable(name).filter(|value| !value.is_empty());
    let text = |name: Variable| set(name).map(|value| value.to_string_lossy().into_owned());
    let is_dumb = text(Variable::Term).is_some_and(|term| term == "dumb");
    let stderr = if is_dumb { StreamKind::Pipe } else { streams.stderr };
    let config =
        options.config.clone().or_else(|| set(Variable::ToolrackConfig).map(PathBuf::from));
    let output = parse_variable(
        Variable::ToolrackOutput,
        text(Variable::ToolrackOutput).filter(|_| options.output.is_none()),
        |value| {
            Output::from_str(value, false)
                .map_err(|_unknown| format!("`{value}` is not a valid output format"))
        },
        "set `TOOLRACK_OUTPUT` to one of: table, json, yaml, ndjson, raw",
    )?;
    let timeout = parse_variable(
        Variable::ToolrackTimeout,
        text(Variable::ToolrackTimeout),
        |value| {
            toolrack_config::parse_duration(value).map_err(|reason| format!("`{value}` {reason}"))
        },
        "set `TOOLRACK_TIMEOUT` to a duration such as `90s`, or unset it",
    )?;
    let listen = parse_variable(
        Variable::ToolrackListen,
        text(Variable::ToolrackListen),
        |value| value.parse().map_err(|reason| format!("invalid address `{value}`: {reason}")),
        "set `TOOLRACK_LISTEN` to an address such as `127.0.0.1:7733`, or unset it",
    )?;
    Ok(Settings {
        has_explicit_config: config.is_some(),
        home: home(config, &set)?,
        insecure_home: if options.allow_insecure_home
            || set(Variable::ToolrackAllowInsecureHome).is_some()
        {
            InsecureHome::Allow
        } else {
            InsecureHome::Refuse
        },
        insecure_paths: OnceLock::new(),
        output: options.output.or(output).unwrap_or_default(),
        verbosity: match (options.quiet, options.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        },
        has_colors: !is_dumb
            && set(Variable::NoColor).is_none()
            && streams.stdout == StreamKind::Terminal,
        timeout,
        agent: options.agent.clone().or_else(|| text(Variable::ToolrackAgent)),
        streams: StdStreams { stderr, ..streams },
        daemon: if options.no_daemon || set(Variable::ToolrackNoDaemon).is_some() {
            DaemonUse::Never
        } else if set(Variable::ToolrackNoAutostart).is_some() {
            DaemonUse::NoAutostart
        } else {
            DaemonUse::Auto
        },
        listen,
    })
}

/// Parses a variable. `parse` returns the message of an invalid value.
fn parse_variable<T>(
    variable: Variable,
    text: Option<String>,
    parse: impl Fn(&str) -> Result<T, String>,
    hint: &str,
) -> Result<Option<T>, CliError> {
    let invalid = |message: String| CliError::usage(message, hint).with_field(&variable.name());
    text.map(|text| parse(&text).map_err(invalid)).transpose()
}

/// What a standard stream is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Terminal,
    Pipe,
}

/// The three standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StdStreams {
    pub(crate) stdin: StreamKind,
    pub(crate) stdout: StreamKind,
    pub(crate) stderr: StreamKind,
    /// Width of stdout, if it is a terminal; tables are not wider.
    pub(crate) columns: Option<usize>,
}

impl StdStreams {
    pub(crate) fn detect() -> Self {
        Self {
            stdin: stream_kind(&stdin()),
            stdout: stream_kind(&stdout()),
            stderr: stream_kind(&stderr()),
            columns: columns(),
        }
    }

    /// Whether the user can be prompted.
    pub(crate) fn is_interactive(&self) -> bool {
        // Prompts go to stderr, so stdout may be a pipe.
        self.stdin == StreamKind::Terminal && self.stderr == StreamKind::Terminal
    }
}

fn stream_kind(stream: &impl IsTerminal) -> StreamKind {
    if stream.is_terminal() { StreamKind::Terminal } else { StreamKind::Pipe }
}

fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPES: StdStreams = StdStreams {
        stdin: StreamKind::Pipe,
        stdout: StreamKind::Pipe,
        stderr: StreamKind::Pipe,
        columns: None,
    };
    const SCREEN: StdStreams = StdStreams {
        stdin: StreamKind::Terminal,
        stdout: StreamKind::Terminal,
        stderr: StreamKind::Terminal,
        columns: Some(80),
    };

    fn settled(
        options: &GlobalOptions,
        variables: &[(Variable, &str)],
        streams: StdStreams,
    ) -> Result<Settings, CliError> {
        let variable = |wanted: Variable| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| OsString::from(value))
        };
        resolve(options, &variable, streams)
    }

    #[track_caller]
    fn check<T: PartialEq + fmt::Debug>(
        (options, variables, streams): (GlobalOptions, &[(Variable, &str)], StdStreams),
        part: impl Fn(Settings) -> T,
        expected: T,
    ) {
        assert_eq!(part(settled(&options, variables, streams).unwrap()), expected);
    }

    #[test]
    fn options_take_precedence_over_variables() {
        let none = GlobalOptions::default;
        let form = |settings: Settings| settings.output;
        check((none(), &[], SCREEN), form, Output::Table);
        check((none(), &[(Variable::ToolrackOutput, "json")], SCREEN), form, Output::Json);
        let given = GlobalOptions { output: Some(Output::Yaml), ..none() };
        check((given, &[(Variable::ToolrackOutput, "json")], SCREEN), form, Output::Yaml);
        let agent = |settings: Settings| settings.agent;
        check((none(), &[(Variable::ToolrackAgent, "")], SCREEN), agent, None);
        let given = GlobalOptions { agent: Some("main".to_owned()), ..none() };
        check(
            (given, &[(Variable::ToolrackAgent, "other")], SCREEN),
            agent,
            Some("main".to_owned()),
        );
        let timeout = |settings: Settings| settings.timeout;
        let minute = Some(Duration::from_mins(1));
        check((none(), &[(Variable::ToolrackTimeout, "1m")], SCREEN), timeout, minute);
    }

    #[test]
    fn home_comes_from_the_environment() {
        let file = |settings: Settings| {
            let home = settings
                .home()
                .ok()
                .map(|home| (home.config_file().to_owned(), home.catalog_dir()));
            (home, settings.has_explicit_config)
        };
        let paths = |file: &str, dir: &str| Some((PathBuf::from(file), PathBuf::from(dir)));
        let none = GlobalOptions::default;
        check((none(), &[], SCREEN), file, (None, false));
        let user = [(Variable::Home, "/u"), (Variable::ToolrackHome, "/h")];
        check((none(), &user, SCREEN), file, (paths("/h/toolrack.toml", "/h/catalog"), false));
        let given = GlobalOptions { config: Some("x.toml".into()), ..none() };
        check((given, &user, SCREEN), file, (paths("x.toml", "/h/catalog"), true));
        assert!(settled(&none(), &[(Variable::ToolrackHome, "relative")], SCREEN).is_err());
    }

    #[test]
    fn colors_and_widths_need_a_terminal() {
        let look = |settings: Settings| {
            (settings.has_colors, settings.streams.columns, settings.streams.stderr)
        };
        let none = GlobalOptions::default;
        check((none(), &[], SCREEN), look, (true, Some(80), StreamKind::Terminal));
        check((none(), &[], PIPES), look, (false, None, StreamKind::Pipe));
        let no_color = [(Variable::NoColor, "1")];
        check((none(), &no_color, SCREEN), look, (false, Some(80), StreamKind::Terminal));
        check(
            (none(), &[(Variable::NoColor, "")], SCREEN),
            look,
            (true, Some(80), StreamKind::Terminal),
        );
        let dumb = [(Variable::Term, "dumb")];
        check((none(), &dumb, SCREEN), look, (false, Some(80), StreamKind::Pipe));
    }

    #[test]
    fn daemon_use_can_be_disabled() {
        let none = GlobalOptions::default;
        let daemon = |settings: Settings| (settings.daemon, settings.listen);
        check((none(), &[], SCREEN), daemon, (DaemonUse::Auto, None));
        check(
            (none(), &[(Variable::ToolrackNoDaemon, "")], SCREEN),
            daemon,
            (DaemonUse::Auto, None),
        );
        check(
            (none(), &[(Variable::ToolrackNoDaemon, "1")], SCREEN),
            daemon,
            (DaemonUse::Never, None),
        );
        let forbidden = GlobalOptions { no_daemon: true, ..none() };
        check((forbidden, &[], SCREEN), daemon, (DaemonUse::Never, None));
        let quiet = [(Variable::ToolrackNoAutostart, "1"), (Variable::ToolrackListen, "none")];
        let expected = (DaemonUse::NoAutostart, Some(Listen::None));
        check((none(), &quiet, SCREEN), daemon, expected);
    }

    #[test]
    fn invalid_variables_are_named() {
        for (variable, value) in [
            (Variable::ToolrackOutput, "xml"),
            (Variable::ToolrackTimeout, "soon"),
            (Variable::ToolrackListen, "7733"),
        ] {
            let failure =
                settled(&GlobalOptions::default(), &[(variable, value)], SCREEN).unwrap_err();
            assert_eq!(failure.summary().field, Some(variable.name()));
            assert!(failure.hint().unwrap().contains(&variable.name()), "{failure:?}");
        }
    }
}
