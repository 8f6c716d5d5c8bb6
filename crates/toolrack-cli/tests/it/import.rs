//! `toolrack import`: a realistic config of each tool in its usual place.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::Fixture;

/// Tool, sample config, and its usual path.
const TOOLS: [(&str, &str, &str); 10] = [
    ("claude", "claude-code/.claude.json", ".claude.json"),
    (
        "claude-desktop",
        "claude-desktop/claude_desktop_config.json",
        ".config/Claude/claude_desktop_config.json",
    ),
    ("cursor", "cursor/.cursor/mcp.json", ".cursor/mcp.json"),
    ("vscode", "vscode/.vscode/mcp.json", ".config/Code/User/mcp.json"),
    ("codex", "codex/config.toml", ".codex/config.toml"),
    ("zed", "zed/settings.json", ".config/zed/settings.json"),
    ("windsurf", "windsurf/windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json"),
    ("opencode", "opencode/opencode.jsonc", ".config/opencode/opencode.jsonc"),
    ("goose", "goose/config.yaml", ".config/goose/config.yaml"),
    ("lmstudio", "lm-studio/.lmstudio/mcp.json", ".lmstudio/mcp.json"),
];

fn put(fixture: &Fixture, tool: &str) {
    let (_, sample, place) = TOOLS.iter().find(|entry| entry.0 == tool).unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolrack-config/tests/samples");
    fixture.put(place, &fs::read_to_string(samples.join(sample)).unwrap());
}

/// Runs the program, and parses its output as JSON lines.
#[track_caller]
fn json(fixture: &Fixture, args: &[&str]) -> Vec<Value> {
    let outcome = fixture.run(&[args, &["-o", "ndjson"]].concat());
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The outcome of each server, and its saved config.
#[track_caller]
fn check(tool: &str, dialect: &str, expected: &[(&str, &str, &str)]) {
    let fixture = Fixture::new();
    put(&fixture, tool);
    let imports = json(&fixture, &["import", tool]);
    assert!(imports.iter().all(|import| import["dialect"] == dialect), "{imports:?}");
    let listed = json(&fixture, &["list"]);
    let rest = |name: &Value| {
        let found = listed.iter().find(|server| server["name"] == *name);
        found.map_or(Value::Null, |server| server["config"].clone())
    };
    let found: Vec<(String, String, String)> = imports
        .iter()
        .map(|import| {
            let text = |key: &str| import[key].as_str().unwrap().to_owned();
            let taken = if import["taken"] == true {
                rest(&import["name"]).to_string()
            } else {
                text("outcome")
            };
            (text("name"), text("target"), taken)
        })
        .collect();
    let found: Vec<(&str, &str, &str)> =
        found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, expected, "{tool}");
    // The saved config is valid, and a second import has nothing to do.
    assert_eq!(fixture.run(&["config", "check"]).status.code(), Some(0));
    let again = json(&fixture, &["import", tool]);
    assert!(again.iter().all(|import| import["taken"] == false), "{again:?}");
}

#[test]
fn claude_code_projects_are_imported() {
    check(
        "claude",
        "Claude Code",
        &[
            ("github", "https://api.githubcopilot.com/mcp/", "null"),
            (
                "postgres",
                "uvx postgres-mcp --access-mode=restricted",
                "skipped: belongs to the project /home/me/shop; run `toolrack import` there to import it",
            ),
            (
                "github",
                "https://example.com/shop/mcp",
                "skipped: belongs to the project /home/me/shop; run `toolrack import` there to import it",
            ),
        ],
    );
}

#[test]
fn claude_desktop_is_imported() {
    check(
        "claude-desktop",
        "Claude Desktop",
        &[
            (
                "memory",
                "npx -y @modelcontextprotocol/server-memory",
                r#"{"args":["-y","@modelcontextprotocol/server-memory"]}"#,
            ),
            ("time", "/opt/homebrew/bin/uvx mcp-server-time", r#"{"args":["mcp-server-time"]}"#),
        ],
    );
}

#[test]
fn cursor_is_imported() {
    check(
        "cursor",
        "Cursor",
        &[
            (
                "local",
                "python ${workspaceFolder}/tools/mcp_server.py --home ${HOME}",
                r#"{"args":["${workspaceFolder}/tools/mcp_server.py","--home","${HOME}"]}"#,
            ),
            (
                "remote",
                "https://api.example.com/mcp",
                r#"{"headers":{"Authorization":"Bearer ${env:MY_SERVICE_TOKEN}"}}"#,
            ),
        ],
    );
}

#[test]
fn vs_code_inputs_become_secrets() {
    check(
        "vscode",
        "VS Code",
        &[
            (
                "Perplexity",
                "npx -y server-perplexity-ask --region=${secret:region:-eu}",
                r#"{"args":["-y","server-perplexity-ask","--region=${secret:region:-eu}"]}"#,
            ),
            (
                "github",
                "https://api.githubcopilot.com/mcp/",
                r#"{"headers":{"X-Trace":"${env:USER}"}}"#,
            ),
        ],
    );
}

#[test]
fn codex_timeouts_keep_their_units() {
    check(
        "codex",
        "Codex",
        &[
            (
                "docs",
                "npx -y docs-mcp $${LITERAL}",
                r#"{"allow":["search","read_*"],"args":["-y","docs-mcp","$${LITERAL}"],"cwd":"/srv/docs","deny":["delete"],"startup_timeout":"20500ms","timeout":"45s"}"#,
            ),
            (
                "figma",
                "https://mcp.figma.com/mcp",
                r#"{"headers":{"Authorization":"Bearer ${env:FIGMA_OAUTH_TOKEN}","X-Figma-Region":"…","X-Org":"${env:ORG_ID}"},"startup_timeout":"1500ms"}"#,
            ),
            ("old", "old-server", "skipped: disabled in that tool"),
        ],
    );
}

#[test]
fn zed_is_imported() {
    check(
        "zed",
        "Zed",
        &[
            (
                "local",
                "some-command --path $${HOME}",
                r#"{"args":["--path","$${HOME}"],"timeout":"45s"}"#,
            ),
            ("older", "node server.js", "skipped: disabled in that tool"),
            ("remote", "https://example.com/mcp", r#"{"headers":{"Authorization":"…"}}"#),
        ],
    );
}

#[test]
fn windsurf_is_imported() {
    check(
        "windsurf",
        "Windsurf",
        &[
            (
                "figma",
                "https://mcp.figma.com/mcp",
                r#"{"deny":["delete_file"],"headers":{"X-Figma-Token":"${env:FIGMA_TOKEN}"}}"#,
            ),
            ("git", "uvx mcp-server-git", "skipped: disabled in that tool"),
        ],
    );
}

#[test]
fn opencode_is_imported() {
    check(
        "opencode",
        "OpenCode",
        &[
            (
                "everything",
                "npx -y @modelcontextprotocol/server-everything ${file:~/.port}",
                r#"{"args":["-y","@modelcontextprotocol/server-everything","${file:~/.port}"],"startup_timeout":"5s"}"#,
            ),
            ("jira", "https://jira.example.com/mcp", "skipped: disabled in that tool"),
        ],
    );
}

#[test]
fn goose_env_keys_become_secrets() {
    check(
        "goose",
        "goose",
        &[
            (
                "github",
                "npx -y @modelcontextprotocol/server-github",
                r#"{"args":["-y","@modelcontextprotocol/server-github"],"timeout":"300s"}"#,
            ),
            ("linear", "https://mcp.linear.app/mcp", "skipped: disabled in that tool"),
            ("nested", "uvx nested-server", r#"{"args":["nested-server"],"timeout":"120s"}"#),
        ],
    );
}

#[test]
fn lm_studio_is_imported() {
    check(
        "lmstudio",
        "LM Studio",
        &[(
            "hf-mcp-server",
            "https://huggingface.co/mcp",
            r#"{"headers":{"Authorization":"…"},"timeout":"15s"}"#,
        )],
    );
}

#[test]
fn all_tools_are_imported_without_plain_secrets() {
    let fixture = Fixture::new();
    for (tool, _, _) in TOOLS {
        put(&fixture, tool);
    }
    let before = fs::read_to_string(fixture.path().join(".config/zed/settings.json")).unwrap();
    let dry = json(&fixture, &["import", "--dry-run"]);
    assert!(!fixture.path().join("home/toolrack.toml").exists());
    let imports = json(&fixture, &["import", "all", "--secrets"]);
    assert_eq!(imports.len(), dry.len());
    let tools: std::collections::BTreeSet<String> =
        imports.iter().map(|import| import["dialect"].to_string()).collect();
    assert_eq!(tools.len(), TOOLS.len(), "{tools:?}");
    let taken = imports.iter().filter(|import| import["taken"] == true).count();
    assert_eq!(json(&fixture, &["list"]).len(), taken);
    let config = fs::read_to_string(fixture.path().join("home/toolrack.toml")).unwrap();
    assert!(config.contains("Bearer ${secret:hf-mcp-server-authorization}"), "{config}");
    let secrets = json(&fixture, &["secret", "list"]);
    let is_its = |secret: &Value| secret["name"] == "hf-mcp-server-authorization";
    assert!(secrets.iter().any(is_its), "{secrets:?}");
    let after = fs::read_to_string(fixture.path().join(".config/zed/settings.json")).unwrap();
    assert_eq!(before, after);
}
