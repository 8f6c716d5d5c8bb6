//! `toolrack daemon unit`: what makes systemd start the daemon, for the very servers that are meant now.

use std::ffi::OsString;

use serde_json::json;

use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::Output;
use crate::settings::{Settings, Variable, of_process};

const FILE: &str = "~/.config/systemd/user/toolrack.service";
const ENABLE: &str = "systemctl --user enable --now toolrack";

/// Prints the unit.
pub(crate) fn unit(surroundings: &Surroundings) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    let program = std::env::current_exe()?.display().to_string();
    let unit = text(&program, &options(settings)?, &variables(settings, &of_process));
    if printer.output() == Output::Table {
        printer.line(unit);
        printer.note(format_args!("save it as `{FILE}`, then: {ENABLE}"));
    } else {
        let said = json!({ "unit": format!("{unit}\n"), "file": FILE, "enable": ENABLE });
        printer.document(&said.to_string());
    }
    Ok(())
}

/// What is typed to mean the servers that are meant now. systemd starts it in another folder.
fn options(settings: &Settings) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    if settings.is_config_given {
        let file = std::path::absolute(settings.home()?.config_file())?;
        words.extend(["--config".to_owned(), file.display().to_string()]);
    }
    if let Some(agent) = &settings.agent {
        words.extend(["--agent".to_owned(), agent.clone()]);
    }
    words.extend(["daemon", "start", "--foreground"].map(str::to_owned));
    if let Some(listen) = settings.listen {
        words.extend(["--listen".to_owned(), listen.to_string()]);
    }
    Ok(words)
}

/// The variables that say where things live.
fn variables(
    settings: &Settings,
    value: &dyn Fn(Variable) -> Option<OsString>,
) -> Vec<(&'static str, String)> {
    // Who names one folder for everything is asked for no other.
    let all: &[Variable] = if settings.is_home_given {
        &[Variable::Home]
    } else {
        &[Variable::XdgConfigHome, Variable::XdgDataHome]
    };
    let given = all.iter().filter_map(|it| Some((it.name(), value(*it)?)));
    let given = given.map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    given.filter(|(_, value)| !value.is_empty()).collect()
}

/// The unit. What is left after the daemon has ended in order is nothing; what is left after it was killed is ended
/// by guardians, and by systemd at last.
fn text(program: &str, options: &[String], variables: &[(&str, String)]) -> String {
    let quoted = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
        format!("\"{text}\"")
    };
    let words = options.iter().map(|it| {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:".contains(it);
        // What stands for itself needs no quotes, and no word may be taken for one of systemd's own variables.
        if it.chars().all(is_plain) { it.clone() } else { quoted(it).replace('$', "$$") }
    });
    let words: Vec<String> = words.collect();
    let environment = variables
        .iter()
        .map(|(name, value)| format!("\nEnvironment={}", quoted(&format!("{name}={value}"))));
    format!(
        "[Unit]\nDescription=Toolrack: MCP servers behind one endpoint\n\n\
         [Service]\nExecStart={} {}{}\nRestart=on-failure\nKillMode=mixed\n\
         TimeoutStopSec=45\n\n[Install]\nWantedBy=default.target",
        quoted(program).replace('$', "$$"),
        words.join(" "),
        environment.collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::GlobalOptions;
    use crate::settings::settle;
    use crate::terminal::{End, Terminal};

    #[track_caller]
    fn check(options: &GlobalOptions, set: &[(Variable, &str)], expected: &[&str]) {
        let value = |it: Variable| {
            let found = set.iter().find(|(name, _)| *name == it);
            found.map(|(_, value)| OsString::from(value))
        };
        let (input, output, talk) = (End::Program, End::Program, End::Program);
        let terminal = Terminal { input, output, talk, columns: None };
        let settings = settle(options, &value, terminal).unwrap();
        let unit = text(
            "/opt/my tools/100%",
            &super::options(&settings).unwrap(),
            &variables(&settings, &value),
        );
        let lines = unit.lines().filter(|it| it.starts_with("ExecStart") || it.starts_with("Env"));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_unit_means_what_is_meant_now() {
        let none = GlobalOptions::default;
        let program = |rest: &str| format!("ExecStart=\"/opt/my tools/100%%\" {rest}");
        let plain = program("daemon start --foreground");
        check(&none(), &[(Variable::UserHome, "/u")], &[&plain]);
        let moved = [(Variable::Home, "/h"), (Variable::XdgDataHome, "/d")];
        check(&none(), &moved, &[&plain, "Environment=\"TOOLRACK_HOME=/h\""]);
        let parted = [
            (Variable::UserHome, "/u"),
            (Variable::XdgConfigHome, "/c %"),
            (Variable::XdgDataHome, "/d"),
        ];
        check(
            &none(),
            &parted,
            &[&plain, "Environment=\"XDG_CONFIG_HOME=/c %%\"", "Environment=\"XDG_DATA_HOME=/d\""],
        );
        let asked = GlobalOptions {
            config: Some("/my $x.toml".into()),
            agent: Some("main".to_owned()),
            ..none()
        };
        let words = program(
            "--config \"/my $$x.toml\" --agent main daemon start --foreground --listen none",
        );
        let set = [(Variable::UserHome, "/u"), (Variable::Listen, "none")];
        check(&asked, &set, &[&words]);
    }
}
