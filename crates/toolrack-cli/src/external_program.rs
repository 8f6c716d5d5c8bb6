//! Runs the user's editor and browser.
//!
//! They are not servers: they share the terminal and may outlive this program, so they have no
//! guardian.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use toolrack_stdio::find_program;

use crate::error::{CliError, command};
use crate::settings::{Variable, env_var};

/// Editors that accept `+LINE`.
const EDITORS_WITH_LINE: [&str; 8] = ["vi", "vim", "nvim", "nano", "emacs", "kak", "micro", "joe"];
/// Programs that open the default browser.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

/// Opens a file in the editor, and waits.
pub(crate) fn edit(file: &Path, line: Option<usize>) -> Result<(), CliError> {
    let mut editors = [Variable::Visual, Variable::Editor].into_iter().filter_map(env_var);
    let editor = editors.find(|editor| !editor.is_empty()).unwrap_or_else(|| "vi".into());
    let editor_args = editor_args(&editor.to_string_lossy(), line);
    let Some((program, args)) = editor_args.split_first() else {
        return Err(no_editor("`EDITOR` is blank"));
    };
    // Waits on this thread: nothing else runs meanwhile, and the editor owns the terminal.
    let status = external_command(program).args(args).arg(file).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(no_editor(&format!("`{program}` failed: {status}"))),
        Err(error) => Err(no_editor(&format!("cannot start `{program}`: {error}"))),
    }
}

fn no_editor(reason: &str) -> CliError {
    let path = command("config path");
    let hint = format!(
        "set `EDITOR` to an editor, e.g. `EDITOR=nano`; {path} prints the path of the file"
    );
    CliError::usage(reason, hint).with_field(&Variable::Editor.name())
}

/// The editor and its arguments; `$EDITOR` may contain some, as in `code --wait`.
fn editor_args(editor: &str, line: Option<usize>) -> Vec<String> {
    let mut editor_args: Vec<String> = editor.split_whitespace().map(str::to_owned).collect();
    let program = editor_args.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if let (true, Some(line)) = (EDITORS_WITH_LINE.contains(&program), line) {
        editor_args.push(format!("+{line}"));
    }
    editor_args
}

/// Opens a page in the browser, without waiting. Command lines are readable by all users, so `page`
/// must not contain a secret.
pub(crate) fn open_page(page: impl AsRef<OsStr>) -> io::Result<()> {
    let chosen = env_var(Variable::Browser).filter(|program| !program.is_empty());
    // The first that is installed: Linux desktops, macOS, and WSL, where it opens the
    // browser of Windows.
    let found =
        OPENERS.iter().find(|opener| find_program(opener, None).is_ok()).map(OsString::from);
    let Some(program) = chosen.or(found) else {
        return Err(io::Error::other("no program to open web pages found; set `BROWSER`"));
    };
    let mut browser = external_command(&program.to_string_lossy());
    // Browsers write warnings to the terminal, and would keep a pipe of this program open.
    browser.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    browser.spawn().map(drop)
}

fn external_command(program: &str) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a program of the user's own, not a server")]
    Command::new(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(editor: &str, line: Option<usize>, expected: &[&str]) {
        assert_eq!(editor_args(editor, line), expected);
    }

    #[test]
    fn editors_open_at_the_line() {
        check("vi", None, &["vi"]);
        check("/usr/bin/vim -n", Some(7), &["/usr/bin/vim", "-n", "+7"]);
        check("code --wait", Some(7), &["code", "--wait"]);
        check(" ", Some(7), &[]);
    }
}
