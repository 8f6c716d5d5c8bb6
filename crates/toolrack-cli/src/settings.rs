//! What holds for every command: options first, then variables of the environment, then what is usual.
//!
//! What neither says is left open here, and the config file decides it for each server.
//!
//! **Invariant:** the environment is read through [`Variable`] only, so the documented table is complete.

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;
use toolrack_http::ProxySettings;
use toolrack_service::Home;

use crate::args::GlobalOptions;
use crate::error::Failure;
use crate::output::Output;
use crate::suggested_command::Aim;

/// What holds for every command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where things live, unless nothing says so.
    home: Option<Home>,
    /// Somebody asked for this very config file, so it has to be there.
    pub(crate) is_config_given: bool,
    /// Everything was moved to one folder.
    pub(crate) is_home_given: bool,
    pub(crate) output: Output,
    pub(crate) talk: Talk,
    pub(crate) paint: Paint,
    /// How wide tables may be. As wide as they like, if nobody looks.
    pub(crate) columns: Option<usize>,
    /// How long a request may take in all. The config file's choice, if not given.
    pub(crate) timeout: Option<Duration>,
    /// Whose servers are meant, beside those that every agent has.
    pub(crate) agent: Option<String>,
    /// What has to be typed again for the next command to mean the same servers.
    pub(crate) aim: Aim,
    pub(crate) terminal: Terminal,
    pub(crate) daemon: DaemonUse,
    /// Where a daemon that is started listens. Where daemons usually do, if not given.
    pub(crate) listen: Option<Listen>,
}

/// Whether a daemon is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonUse {
    /// One that runs is used, and one is started where nothing can be done without.
    Usual,
    /// One that runs is used, and none is started by itself.
    NoAutostart,
    /// None, as if none ran.
    Never,
}

/// Where a daemon listens for browsers and other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    At(SocketAddr),
    /// On its Unix socket alone.
    Nowhere,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(addr) => addr.fmt(f),
            Self::Nowhere => f.write_str("none"),
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let addr: Option<SocketAddr> = text.parse().ok();
        addr.map(Self::At).ok_or_else(|| {
            "is no address with a port, as in `127.0.0.1:7733`, and not `none`".to_owned()
        })
    }
}

/// How much is said besides data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Failures only.
    Quiet,
    Usual,
    /// Also what servers write to their error output and their logs.
    Verbose,
}

/// Whether data is shown in colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Color,
    Plain,
}

/// Every variable of the environment that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    Home,
    Config,
    Output,
    Timeout,
    Agent,
    NoDaemon,
    NoAutostart,
    Listen,
    XdgConfigHome,
    XdgDataHome,
    UserHome,
    NoColor,
    Term,
    Visual,
    Editor,
    Browser,
    HttpProxy,
    HttpsProxy,
    AllProxy,
    NoProxy,
}

impl Variable {
    pub(crate) const ALL: [Self; 20] = [
        Self::Home,
        Self::Config,
        Self::Output,
        Self::Timeout,
        Self::Agent,
        Self::NoDaemon,
        Self::NoAutostart,
        Self::Listen,
        Self::XdgConfigHome,
        Self::XdgDataHome,
        Self::UserHome,
        Self::NoColor,
        Self::Term,
        Self::Visual,
        Self::Editor,
        Self::Browser,
        Self::HttpProxy,
        Self::HttpsProxy,
        Self::AllProxy,
        Self::NoProxy,
    ];

    /// Those that say how servers over HTTP are reached. Small letters count too, and first.
    const PROXIES: [Self; 4] = [Self::HttpProxy, Self::HttpsProxy, Self::AllProxy, Self::NoProxy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Home => "TOOLRACK_HOME",
            Self::Config => "TOOLRACK_CONFIG",
            Self::Output => "TOOLRACK_OUTPUT",
            Self::Timeout => "TOOLRACK_TIMEOUT",
            Self::Agent => "TOOLRACK_AGENT",
            Self::NoDaemon => "TOOLRACK_NO_DAEMON",
            Self::NoAutostart => "TOOLRACK_NO_AUTOSTART",
            Self::Listen => "TOOLRACK_LISTEN",
            Self::XdgConfigHome => "XDG_CONFIG_HOME",
            Self::XdgDataHome => "XDG_DATA_HOME",
            Self::UserHome => "HOME",
            Self::NoColor => "NO_COLOR",
            Self::Term => "TERM",
            Self::Visual => "VISUAL",
            Self::Editor => "EDITOR",
            Self::Browser => "BROWSER",
            Self::HttpProxy => "HTTP_PROXY",
            Self::HttpsProxy => "HTTPS_PROXY",
            Self::AllProxy => "ALL_PROXY",
            Self::NoProxy => "NO_PROXY",
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Home => "one directory for the config file and all data",
            Self::Config => "the config file, like `--config`",
            Self::Output => "the form of data, like `--output`",
            Self::Timeout => "how long a request may take in all, like `--timeout`",
            Self::Agent => "whose servers are meant, like `--agent`",
            Self::NoDaemon => {
                "use no daemon, like `--no-daemon`, whatever its value, unless it is empty"
            }
            Self::NoAutostart => {
                "start no daemon by itself, whatever its value, unless it is empty"
            }
            Self::Listen => "where a daemon listens, like `--listen` of `toolrack daemon start`",
            Self::XdgConfigHome => {
                "where `toolrack/toolrack.toml` is; `~/.config` if it is not set"
            }
            Self::XdgDataHome => "where `toolrack/` keeps data; `~/.local/share` if it is not set",
            Self::UserHome => "where `~` is",
            Self::NoColor => "no colours, whatever its value, unless it is empty",
            Self::Term => "`dumb` means no colours and no live lines",
            Self::Visual => "the editor of `toolrack edit`, before `EDITOR`",
            Self::Editor => "the editor of `toolrack edit`; `vi` if it is not set",
            Self::Browser => "the program that shows the page of a login",
            Self::HttpProxy => "the proxy for `http` addresses; small letters count too, and first",
            Self::HttpsProxy => "the proxy for `https` addresses",
            Self::AllProxy => "the proxy for both",
            Self::NoProxy => "hosts that are reached without a proxy, separated by commas",
        }
    }
}

impl Settings {
    /// Where things live.
    pub(crate) fn home(&self) -> Result<&Home, Failure> {
        self.home.as_ref().ok_or_else(|| {
            let hint = "set `HOME`, or `TOOLRACK_HOME` to a folder for everything";
            Failure::config("it is unknown where configs are kept", hint)
        })
    }
}

/// The home that the environment names, with the config file that was asked for.
fn home(
    config: Option<PathBuf>,
    set: &dyn Fn(Variable) -> Option<OsString>,
) -> Result<Option<Home>, Failure> {
    let named = |name: &str| set(*Variable::ALL.iter().find(|it| it.name() == name)?);
    let home = match Home::of(named) {
        Ok(home) => home,
        Err(error) if set(Variable::Home).is_some() => return Err(error.into()),
        Err(_nowhere) => return Ok(None),
    };
    Ok(Some(match config {
        Some(file) => Home::new(file, home.dir()),
        None => home,
    }))
}

/// What the environment says about proxies.
pub(crate) fn proxies() -> ProxySettings {
    let names = Variable::PROXIES.iter().flat_map(|it| {
        let name = it.name();
        [name.to_ascii_lowercase(), name.to_owned()]
    });
    let value = |name: &str| std::env::var_os(name)?.into_string().ok();
    ProxySettings::from_pairs(names.filter_map(|name| Some((name.clone(), value(&name)?))))
}

/// A variable of the environment of this process.
pub(crate) fn of_process(variable: Variable) -> Option<OsString> {
    std::env::var_os(variable.name())
}

/// Settles everything at once.
pub(crate) fn settle(
    options: &GlobalOptions,
    variable: &dyn Fn(Variable) -> Option<OsString>,
    terminal: Terminal,
) -> Result<Settings, Failure> {
    let set = |it: Variable| variable(it).filter(|value| !value.is_empty());
    let text = |it: Variable| set(it).map(|value| value.to_string_lossy().into_owned());
    let is_dumb = text(Variable::Term).is_some_and(|it| it == "dumb");
    let talk_end = if is_dumb { End::Program } else { terminal.talk };
    let is_plain = is_dumb || set(Variable::NoColor).is_some() || terminal.output == End::Program;
    let config = options.config.clone().or_else(|| set(Variable::Config).map(PathBuf::from));
    Ok(Settings {
        is_config_given: config.is_some(),
        is_home_given: set(Variable::Home).is_some(),
        home: home(config, &set)?,
        output: match options.output {
            Some(output) => output,
            None => text(Variable::Output).map_or(Ok(Output::default()), |it| output(&it))?,
        },
        talk: match (options.quiet, options.verbose) {
            (true, _) => Talk::Quiet,
            (false, true) => Talk::Verbose,
            (false, false) => Talk::Usual,
        },
        paint: if is_plain { Paint::Plain } else { Paint::Color },
        columns: terminal.columns.filter(|_| terminal.output == End::Person),
        timeout: text(Variable::Timeout).map(|it| timeout(&it)).transpose()?,
        agent: options.agent.clone().or_else(|| text(Variable::Agent)),
        aim: Aim::of(options),
        terminal: Terminal { talk: talk_end, ..terminal },
        daemon: if options.no_daemon || set(Variable::NoDaemon).is_some() {
            DaemonUse::Never
        } else if set(Variable::NoAutostart).is_some() {
            DaemonUse::NoAutostart
        } else {
            DaemonUse::Usual
        },
        listen: text(Variable::Listen).map(|it| listen(&it)).transpose()?,
    })
}

fn output(text: &str) -> Result<Output, Failure> {
    Output::from_str(text, false).map_err(|_unknown| {
        let forms: Vec<&str> = Output::ALL.iter().map(|it| it.word()).collect();
        let message = format!("`{text}` is no form of output");
        let hint = format!("set `TOOLRACK_OUTPUT` to one of: {}", forms.join(", "));
        Failure::usage(message, hint).at(Variable::Output.name())
    })
}

fn listen(text: &str) -> Result<Listen, Failure> {
    text.parse().map_err(|why: String| {
        let hint = "set `TOOLRACK_LISTEN` to an address such as `127.0.0.1:7733`, or unset it";
        Failure::usage(format!("`{text}` {why}"), hint).at(Variable::Listen.name())
    })
}

fn timeout(text: &str) -> Result<Duration, Failure> {
    toolrack_config::parse_time(text).map_err(|why| {
        let message = format!("`{text}` {why}");
        let hint = "set `TOOLRACK_TIMEOUT` to a time such as `90s`, or unset it";
        Failure::usage(message, hint).at(Variable::Timeout.name())
    })
}

/// Who is at the other end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Person,
    Program,
}

/// The three standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(crate) input: End,
    pub(crate) output: End,
    pub(crate) talk: End,
    /// How wide the terminal is on which data is shown, if it is one and says so.
    pub(crate) columns: Option<usize>,
}

impl Terminal {
    pub(crate) fn look() -> Self {
        Self {
            input: end(&stdin()),
            output: end(&stdout()),
            talk: end(&stderr()),
            columns: columns(),
        }
    }

    /// Whether somebody can be asked something and be heard.
    pub(crate) fn has_person(&self) -> bool {
        self.input == End::Person && self.talk == End::Person
    }
}

fn end(stream: &impl IsTerminal) -> End {
    if stream.is_terminal() { End::Person } else { End::Program }
}

fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPES: Terminal =
        Terminal { input: End::Program, output: End::Program, talk: End::Program, columns: None };
    const SCREEN: Terminal =
        Terminal { input: End::Person, output: End::Person, talk: End::Person, columns: Some(80) };

    fn settled(
        options: &GlobalOptions,
        variables: &[(Variable, &str)],
        terminal: Terminal,
    ) -> Result<Settings, Failure> {
        let variable = |it: Variable| {
            let found = variables.iter().find(|(name, _)| *name == it);
            found.map(|(_, value)| OsString::from(value))
        };
        settle(options, &variable, terminal)
    }

    #[track_caller]
    fn check<T: PartialEq + fmt::Debug>(
        (options, variables, terminal): (GlobalOptions, &[(Variable, &str)], Terminal),
        part: impl Fn(Settings) -> T,
        expected: T,
    ) {
        assert_eq!(part(settled(&options, variables, terminal).unwrap()), expected);
    }

    #[test]
    fn options_win_over_variables_and_variables_over_what_is_usual() {
        let none = GlobalOptions::default;
        let form = |it: Settings| it.output;
        check((none(), &[], SCREEN), form, Output::Table);
        check((none(), &[(Variable::Output, "json")], SCREEN), form, Output::Json);
        let given = GlobalOptions { output: Some(Output::Yaml), ..none() };
        check((given, &[(Variable::Output, "json")], SCREEN), form, Output::Yaml);
        let agent = |it: Settings| it.agent;
        check((none(), &[(Variable::Agent, "")], SCREEN), agent, None);
        let given = GlobalOptions { agent: Some("main".to_owned()), ..none() };
        check((given, &[(Variable::Agent, "other")], SCREEN), agent, Some("main".to_owned()));
        let timeout = |it: Settings| it.timeout;
        let minute = Some(Duration::from_mins(1));
        check((none(), &[(Variable::Timeout, "1m")], SCREEN), timeout, minute);
    }

    #[test]
    fn a_home_is_where_the_environment_says() {
        let file = |it: Settings| {
            let home = it.home().ok().map(|it| (it.config_file().to_owned(), it.catalog_dir()));
            (home, it.is_config_given)
        };
        let paths = |file: &str, dir: &str| Some((PathBuf::from(file), PathBuf::from(dir)));
        let none = GlobalOptions::default;
        check((none(), &[], SCREEN), file, (None, false));
        let user = [(Variable::UserHome, "/u"), (Variable::Home, "/h")];
        check((none(), &user, SCREEN), file, (paths("/h/toolrack.toml", "/h/catalog"), false));
        let given = GlobalOptions { config: Some("x.toml".into()), ..none() };
        check((given, &user, SCREEN), file, (paths("x.toml", "/h/catalog"), true));
        assert!(settled(&none(), &[(Variable::Home, "relative")], SCREEN).is_err());
    }

    #[test]
    fn colours_and_widths_are_for_people() {
        let look = |it: Settings| (it.paint, it.columns, it.terminal.talk);
        let none = GlobalOptions::default;
        check((none(), &[], SCREEN), look, (Paint::Color, Some(80), End::Person));
        check((none(), &[], PIPES), look, (Paint::Plain, None, End::Program));
        let no_color = [(Variable::NoColor, "1")];
        check((none(), &no_color, SCREEN), look, (Paint::Plain, Some(80), End::Person));
        check(
            (none(), &[(Variable::NoColor, "")], SCREEN),
            look,
            (Paint::Color, Some(80), End::Person),
        );
        let dumb = [(Variable::Term, "dumb")];
        check((none(), &dumb, SCREEN), look, (Paint::Plain, Some(80), End::Program));
    }

    #[test]
    fn a_daemon_is_used_unless_somebody_forbids_it() {
        let none = GlobalOptions::default;
        let said = |it: Settings| (it.daemon, it.listen);
        check((none(), &[], SCREEN), said, (DaemonUse::Usual, None));
        check((none(), &[(Variable::NoDaemon, "")], SCREEN), said, (DaemonUse::Usual, None));
        check((none(), &[(Variable::NoDaemon, "1")], SCREEN), said, (DaemonUse::Never, None));
        let forbidden = GlobalOptions { no_daemon: true, ..none() };
        check((forbidden, &[], SCREEN), said, (DaemonUse::Never, None));
        let quiet = [(Variable::NoAutostart, "1"), (Variable::Listen, "none")];
        let expected = (DaemonUse::NoAutostart, Some(Listen::Nowhere));
        check((none(), &quiet, SCREEN), said, expected);
    }

    #[test]
    fn a_variable_that_means_nothing_is_named() {
        for (variable, value) in
            [(Variable::Output, "xml"), (Variable::Timeout, "soon"), (Variable::Listen, "7733")]
        {
            let failure =
                settled(&GlobalOptions::default(), &[(variable, value)], SCREEN).unwrap_err();
            assert_eq!(failure.faults()[0].field.as_deref(), Some(variable.name()));
            assert!(failure.hint().unwrap().contains(variable.name()), "{failure:?}");
        }
    }
}
