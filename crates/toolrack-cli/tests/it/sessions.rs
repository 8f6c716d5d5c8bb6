//! Plays the shell sessions in `tests/sessions`. `UPDATE=1` rewrites the output in them.
//!
//! `$ ` is a command, `| ` is stdout, `! ` is stderr, `= ` is a nonzero exit code. `@ ` names a
//! file and `+ ` is a line of it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::{Fixture, programs};

#[test]
fn sessions_match() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 5, "{paths:?}");
    for path in paths {
        let written = fs::read_to_string(&path).unwrap();
        let played = play(&written);
        if std::env::var_os("UPDATE").is_some() {
            #[expect(clippy::disallowed_methods, reason = "a session, rewritten on request")]
            fs::write(&path, &played).unwrap();
        } else {
            assert!(
                played == written,
                "{} is not as written; it is now:\n{played}",
                path.display()
            );
        }
    }
}

/// Plays a session, and returns it with the actual output.
fn play(written: &str) -> String {
    let fixture = Fixture::new();
    let mut played = String::new();
    let mut file: Option<(String, String)> = None;
    for line in written.lines() {
        match line.split_at_checked(2) {
            Some(("@ ", name)) => file = Some((name.to_owned(), String::new())),
            Some(("+ ", text)) => {
                let (name, content) = file.as_mut().expect("a file before its lines");
                content.push_str(text);
                content.push('\n');
                fixture.put(name, content);
            }
            Some(("| " | "! " | "= ", _)) => continue,
            _ => {}
        }
        played.push_str(line);
        played.push('\n');
        if let Some(typed) = line.strip_prefix("$ ") {
            played.push_str(&answer(&fixture, typed));
        }
    }
    fixture.marker.assert_no_processes_left(crate::fixture::LONG);
    played
}

fn answer(fixture: &Fixture, typed: &str) -> String {
    let outcome = fixture.shell(typed);
    let (dir, programs) = (fixture.path().display().to_string(), programs());
    let mut answer = String::new();
    for (mark, text) in [("|", &outcome.stdout), ("!", &outcome.stderr)] {
        for line in text.replace(&dir, "$DIR").replace(&programs, "$BIN").lines() {
            let line = settled(line);
            writeln!(answer, "{mark} {line}").unwrap();
        }
    }
    let code = outcome.status.code().expect("an exit code");
    if code != 0 {
        writeln!(answer, "= {code}").unwrap();
    }
    answer
}

/// Replaces values that differ between runs: IDs, times and durations.
fn settled(line: &str) -> String {
    const SHAPES: [(&str, &str); 2] =
        [("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "$ID"), ("dddd-dd-ddTdd:dd:ddZ", "$TIME")];
    let mut settled = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let found = SHAPES.iter().find(|(shape, _)| fits(rest, shape));
        let taken = match found {
            Some((shape, word)) => {
                settled.push_str(word);
                shape.len()
            }
            None => {
                settled.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    // Ephemeral ports have five digits.
    let settled = without_number(settled, "127.0.0.1:", 5);
    let settled = without_number(settled, "process ", 1);
    without_number(settled, " ready in ", 1)
}

/// Replaces a port, PID or duration.
fn without_number(line: String, before: &str, least_digits: usize) -> String {
    let Some((start, rest)) = line.split_once(before) else { return line };
    let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() - behind.len() < least_digits {
        return line;
    }
    format!("{start}{before}$N{behind}")
}

fn fits(text: &str, shape: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| match shape {
        b'x' => byte.is_ascii_hexdigit(),
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    text.len() >= shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}
