//! Random text: no reader panics, hangs or exhausts the stack.

use proptest::prelude::*;
use toolrack_config::{Dialect, detect, interpolate, read, read_as};

use crate::format;

const DIALECTS: [Dialect; 13] = [
    Dialect::Toolrack,
    Dialect::McpServers,
    Dialect::ClaudeCode,
    Dialect::ClaudeDesktop,
    Dialect::Cursor,
    Dialect::Windsurf,
    Dialect::LmStudio,
    Dialect::Cline,
    Dialect::VsCode,
    Dialect::Zed,
    Dialect::Codex,
    Dialect::OpenCode,
    Dialect::Goose,
];

const SAMPLES: [&str; 14] = [
    "native/toolrack.toml",
    "native/spacebot.toml",
    "claude-code/.mcp.json",
    "claude-code/.claude.json",
    "claude-desktop/claude_desktop_config.json",
    "cursor/.cursor/mcp.json",
    "windsurf/windsurf/mcp_config.json",
    "vscode/.vscode/mcp.json",
    "zed/settings.json",
    "codex/config.toml",
    "opencode/opencode.jsonc",
    "opencode/v2.json",
    "goose/config.yaml",
    "cline/cline_mcp_settings.json",
];

/// Calls every function on a text and checks the invariants.
fn exercise(file: &str, text: &str) {
    let reading = read(file, text);
    assert_eq!(reading.value.dialect, detect(file, text));
    let n_lines = text.matches('\n').count() + 1;
    for diagnostic in &reading.diagnostics {
        let at = diagnostic.at.expect("a diagnostic of a file has a position");
        assert!((1..=n_lines).contains(&at.line), "{diagnostic}");
        assert!(!diagnostic.message.is_empty());
    }
    for config in reading.value.resolve("main") {
        let _resolved = interpolate(&config, &|_, name: &str| Ok(Some(name.to_owned())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_text_is_read(text in any::<String>(), n in 0..DIALECTS.len()) {
        exercise("a", &text);
        let _reading = read_as(DIALECTS[n], "a", &text);
    }

    #[test]
    fn texts_of_punctuation_are_read(text in r#"[\[\]{}"':=,.#/*&!|>$\n \t~?%@a1-]{0,80}"#) {
        for file in ["a.toml", "a.json", "a.yaml"] {
            exercise(file, &text);
        }
    }

    #[test]
    fn mutated_sample_is_read(
        n in 0..SAMPLES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<char>(), 0..3_u8), 1..6),
    ) {
        let mut letters: Vec<char> = format::sample(SAMPLES[n]).chars().collect();
        for (index, letter, act) in changes {
            if letters.is_empty() {
                break;
            }
            let at = index.index(letters.len());
            match act {
                0 => letters[at] = letter,
                1 => letters.insert(at, letter),
                _ => drop(letters.remove(at)),
            }
        }
        exercise(SAMPLES[n], &letters.into_iter().collect::<String>());
    }

    #[test]
    fn truncated_sample_is_read(n in 0..SAMPLES.len(), end in any::<prop::sample::Index>()) {
        let letters: Vec<char> = format::sample(SAMPLES[n]).chars().collect();
        let end = end.index(letters.len());
        exercise(SAMPLES[n], &letters[..end].iter().collect::<String>());
    }
}

/// Runs on a small stack, like a server task.
fn on_a_small_stack(act: fn()) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(act).unwrap().join().unwrap();
}

#[test]
fn depth_does_not_exhaust_the_stack() {
    on_a_small_stack(|| {
        let deep = 200_000;
        exercise("a.json", &"[".repeat(deep));
        exercise("a.json", &r#"{"a":"#.repeat(deep));
        exercise("a.yaml", &"[".repeat(deep));
        exercise("a.yaml", &"- ".repeat(2_000));
        exercise("a.toml", &format!("a = {}", "[".repeat(deep)));
        exercise("a.toml", &format!("a = {}", "{a=".repeat(deep)));
        exercise("a.toml", &format!("{}a = 1", "a.".repeat(deep)));
        exercise("a.toml", &format!("[{}a]\nb = 1", "a.".repeat(deep)));
        exercise("a.toml", &format!("{}a = 1", "\"a\".".repeat(deep)));
        exercise("a.toml", &format!("{}a = 1", "'a' . ".repeat(deep)));
    });
}

#[test]
fn yaml_aliases_are_bounded() {
    let line = |n: usize| format!("a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", "));
    let lines = std::iter::once("a0: &a0 [x, x, x]".to_owned()).chain((1..30).map(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let reading = read("a.yaml", &text);
    assert!(
        reading.diagnostics[0].message.contains("too many values"),
        "{:?}",
        reading.diagnostics
    );
}

#[test]
fn diagnostics_are_bounded() {
    let text = "[[defaults.mcp]]\nargs = 1\n".repeat(5_000);
    let reading = read("a.toml", &text);
    assert!(reading.has_errors());
    assert!(reading.diagnostics.len() <= 1_000);
}
