//! Tests of the argument definitions; docs/cli.md, which is generated from them.

use super::*;

#[test]
fn the_arguments_are_sound() {
    Cli::command().debug_assert();
}

#[track_caller]
fn check(line: &str, expected: Option<Output>) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    assert_eq!(asked_output(&words), expected, "{line}");
}

#[test]
fn the_form_is_found_in_a_line_that_is_wrong() {
    check("cal x", None);
    check("cal -o json", Some(Output::Json));
    check("cal -ojson --what", Some(Output::Json));
    check("cal --output=yaml", Some(Output::Yaml));
    check("cal --output raw", Some(Output::Raw));
    check("cal -- -o json", None);
    check("cal -o xml", None);
}

#[test]
fn every_command_is_in_one_group() {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
    let mut grouped: Vec<&str> =
        COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    shown.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, shown);
}

const HEAD: &str = "\
# The program `toolrack`

<!-- Written by the test `the_reference_is_up_to_date`; run it with `UPDATE=1` to write it again. -->

Data goes to the standard output and talk to the standard error, so the output of every command can be piped.
A failure is one or more lines `error: …` and one line `hint: …` with what to do next.
With `-o json` it is one line of JSON, `{\"code\", \"message\", \"field\", \"hint\"}`, and nothing else is on the standard error unless \
`--verbose` asks for it.
A document that is nested deeper than 128 levels is not indented but written on one line, also with `-o yaml`; `-o table` only \
says so.
Whatever a server says is shown without control characters and hidden characters; `-o raw` alone leaves it untouched.
Ctrl-C cancels what is being done, and the server is told; a second Ctrl-C leaves at once.

If a daemon runs for the same config file and agent (`toolrack daemon start`), commands use its servers: `tools`, `call`, `search`, \
`resources`, `read`, `prompts`, `prompt`, `serve`, `status`, `start`, `stop`, `restart`, `enable` and `disable`.
A call through it ends by its `--timeout`, or else by the `timeout` that the config gives its server, as it does without one.
Its servers have the environment and the folder (`~`) of the daemon, not those of the command; a variable that is set later takes \
`toolrack daemon stop` and `toolrack daemon start`.
A server whose arguments name something in the folder in which it is added is always started in that folder (`cwd`).
`start`, `restart` and `dashboard` start a daemon if none runs, unless `TOOLRACK_NO_AUTOSTART` is set; no other command does, `call` neither.
`--no-daemon` and `TOOLRACK_NO_DAEMON` do without one; servers that are typed (`-- COMMAND…`, `--url`) never go through it, \
and `add`, `status --check` and `doctor` try servers apart from it; `doctor` also says what is wrong with them there.

The config file is `$XDG_CONFIG_HOME/toolrack/toolrack.toml`; docs/config.md describes it.
A `.toolrack.toml` in the current directory is ignored, because nobody has approved it.
";

/// The text of docs/cli.md.
fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut add = |text: std::fmt::Arguments<'_>| page.write_fmt(text).unwrap_or_default();
    add(format_args!("\n## Exit codes\n\n| code | meaning |\n|--:|---|\n"));
    for exit_code in ExitCode::ALL {
        add(format_args!("| {} | {} |\n", exit_code.code(), exit_code.description()));
    }
    add(format_args!("\n## Environment\n\n| variable | meaning |\n|---|---|\n"));
    for variable in Variable::ALL {
        add(format_args!("| `{}` | {} |\n", variable.name(), variable.description()));
    }
    add(format_args!("\nAn option wins over a variable, and a variable over the config file.\n"));
    let mut command = command();
    command.build();
    add(format_args!("\n## `toolrack`\n\n```text\n{}```\n", trimmed(&command.render_help())));
    for name in COMMAND_GROUPS.iter().flat_map(|(_, names)| *names) {
        let Some(verb) = command.find_subcommand_mut(name) else { continue };
        let text = trimmed(&verb.render_help());
        add(format_args!("\n## `toolrack {name}`\n\n```text\n{text}```\n"));
        for part in verb.get_subcommands_mut() {
            let (part_name, text) = (part.get_name().to_owned(), trimmed(&part.render_help()));
            add(format_args!("\n### `toolrack {name} {part_name}`\n\n```text\n{text}```\n"));
        }
    }
    page
}

/// Help as it is printed, without trailing spaces.
fn trimmed(help: &clap::builder::StyledStr) -> String {
    let text = help.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// Compares docs/cli.md with the generated text. `UPDATE=1` writes the file instead.
#[test]
fn the_reference_is_up_to_date() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let expected = page();
    if std::env::var_os("UPDATE").is_some() {
        #[expect(clippy::disallowed_methods, reason = "a published file, rewritten on request")]
        std::fs::write(&path, &expected).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "docs/cli.md is out of date: run this test with `UPDATE=1`");
}
