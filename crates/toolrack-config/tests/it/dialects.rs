//! Realistic files of every supported tool.

use toolrack_config::{Dialect, detect, read, read_as};

use crate::format;

#[track_caller]
fn check(sample: &str, dialect: Dialect, servers: &[&str], diagnostics: &[&str]) {
    let text = format::sample(sample);
    let reading = read(sample, &text);
    assert_eq!(detect(sample, &text), dialect, "{sample}");
    assert_eq!(reading.value.dialect, dialect, "{sample}");
    assert_eq!(format::servers(&reading.value), servers, "{sample}");
    assert_eq!(format::diagnostics(&reading.diagnostics), diagnostics, "{sample}");
    assert_eq!(read_as(dialect, sample, &text), reading, "{sample}");
}

#[test]
fn claude_code_milliseconds_and_variables() {
    check(
        "claude-code/.mcp.json",
        Dialect::ClaudeCode,
        &[
            r#"filesystem: npx ["-y", "@modelcontextprotocol/server-filesystem", "${PROJECT_DIR:-.}"] env={"LOG_LEVEL": "info", "SHELL_FORM": "$${NAME%.*}"} timeout=60s max_timeout=60s"#,
            r#"sentry: https://mcp.sentry.dev/mcp headers={"Authorization": "Bearer ${SENTRY_TOKEN}"}"#,
            "asana: https://mcp.asana.com/sse",
        ],
        &["W 15:67 Unsupported mcpServers.asana.headersHelper"],
    );
}

#[test]
fn claude_code_projects_become_agents() {
    let sample = "claude-code/.claude.json";
    check(
        sample,
        Dialect::ClaudeCode,
        &[
            "github: https://api.githubcopilot.com/mcp/",
            r#"/home/me/shop/postgres: uvx ["postgres-mcp", "--access-mode=restricted"] env={"DATABASE_URI": "${DATABASE_URI}"}"#,
            "/home/me/shop/github: https://example.com/shop/mcp",
        ],
        &[],
    );
    let file = read(sample, &format::sample(sample)).value;
    let names =
        |agent| file.resolve(agent).into_iter().map(|resolve| resolve.name).collect::<Vec<_>>();
    assert_eq!(names("/home/me/shop"), ["github", "postgres"]);
    assert_eq!(names("/home/me/empty"), ["github"]);
}

#[test]
fn claude_desktop_has_no_variables() {
    check(
        "claude-desktop/claude_desktop_config.json",
        Dialect::ClaudeDesktop,
        &[
            r#"memory: npx ["-y", "@modelcontextprotocol/server-memory"] env={"MEMORY_FILE_PATH": "/home/me/$${not_expanded}/memory.json"}"#,
            r#"time: /opt/homebrew/bin/uvx ["mcp-server-time"]"#,
        ],
        &[],
    );
}

#[test]
fn cursor_comments_and_variables() {
    check(
        "cursor/.cursor/mcp.json",
        Dialect::Cursor,
        &[
            r#"local: python ["${workspaceFolder}/tools/mcp_server.py", "--home", "${HOME}"] env={"API_KEY": "${env:API_KEY}", "PORT": "8080"}"#,
            r#"remote: https://api.example.com/mcp headers={"Authorization": "Bearer ${env:MY_SERVICE_TOKEN}"}"#,
        ],
        &[
            "W 7:16 Unsupported mcpServers.local.args[0]",
            "W 9:7 Unsupported mcpServers.local.envFile",
        ],
    );
}

#[test]
fn windsurf_server_url_and_disabled() {
    check(
        "windsurf/windsurf/mcp_config.json",
        Dialect::Windsurf,
        &[
            r#"figma: https://mcp.figma.com/mcp headers={"X-Figma-Token": "${env:FIGMA_TOKEN}"} deny=["delete_file"]"#,
            r#"git: off uvx ["mcp-server-git"]"#,
        ],
        &[],
    );
}

#[test]
fn lm_studio_milliseconds_and_cline_seconds() {
    check(
        "lm-studio/.lmstudio/mcp.json",
        Dialect::LmStudio,
        &[
            r#"hf-mcp-server: https://huggingface.co/mcp headers={"Authorization": "Bearer hf_placeholder"} timeout=15s"#,
        ],
        &[],
    );
    check(
        "cline/cline_mcp_settings.json",
        Dialect::Cline,
        &[
            r#"weather: node ["/opt/weather/index.js"] timeout=90s"#,
            "linear: off https://mcp.linear.app/mcp timeout=60s",
        ],
        &[],
    );
}

#[test]
fn vscode_inputs_become_secrets() {
    check(
        "vscode/.vscode/mcp.json",
        Dialect::VsCode,
        &[
            r#"Perplexity: npx ["-y", "server-perplexity-ask", "--region=${secret:region:-eu}"] env={"PERPLEXITY_API_KEY": "${secret:perplexity-key}"}"#,
            r#"github: https://api.githubcopilot.com/mcp/ headers={"X-Trace": "${env:USER}"}"#,
        ],
        &["W 3:5 Unsupported inputs[0]"],
    );
    check("vscode/settings.json", Dialect::VsCode, &[r#"fetch: uvx ["mcp-server-fetch"]"#], &[]);
}

#[test]
fn zed_seconds_and_extensions() {
    check(
        "zed/settings.json",
        Dialect::Zed,
        &[
            r#"local: some-command ["--path", "$${HOME}"] env={"A": "1"} timeout=45s"#,
            r#"older: off node ["server.js"]"#,
            r#"remote: https://example.com/mcp headers={"Authorization": "Bearer x"}"#,
        ],
        &["W 18:5 Unsupported context_servers.mcp-server-context7"],
    );
}

#[test]
fn codex_units_and_variables() {
    check(
        "codex/config.toml",
        Dialect::Codex,
        &[
            r#"docs: npx ["-y", "docs-mcp", "$${LITERAL}"] env={"DOCS_TOKEN": "${env:DOCS_TOKEN:-}", "MY_ENV_VAR": "MY_ENV_VALUE"} cwd=/srv/docs timeout=45s startup_timeout=20.5s allow=["search", "read_*"] deny=["delete"]"#,
            r#"figma: https://mcp.figma.com/mcp headers={"Authorization": "Bearer ${env:FIGMA_OAUTH_TOKEN}", "X-Figma-Region": "us-east-1", "X-Org": "${env:ORG_ID}"} startup_timeout=1.5s"#,
            "old: off old-server []",
        ],
        &[],
    );
}

#[test]
fn opencode_has_two_formats_in_milliseconds() {
    check(
        "opencode/opencode.jsonc",
        Dialect::OpenCode,
        &[
            r#"everything: npx ["-y", "@modelcontextprotocol/server-everything", "${file:~/.port}"] env={"PLAIN": "$${X}", "TOKEN": "${env:MY_TOKEN}"} startup_timeout=5s"#,
            r#"jira: off https://jira.example.com/mcp headers={"Authorization": "Bearer ${env:JIRA_TOKEN}"}"#,
        ],
        &[],
    );
    check(
        "opencode/v2.json",
        Dialect::OpenCode,
        &[r#"local: off bun ["x", "my-mcp"] cwd=. timeout=90s startup_timeout=20s"#],
        &[],
    );
}

#[test]
fn goose_seconds_and_builtin_extensions() {
    check(
        "goose/config.yaml",
        Dialect::Goose,
        &[
            r#"github: npx ["-y", "@modelcontextprotocol/server-github"] env={"GITHUB_PERSONAL_ACCESS_TOKEN": "secret GITHUB_PERSONAL_ACCESS_TOKEN", "RETRIES": "3"} timeout=300s"#,
            r#"linear: off https://mcp.linear.app/mcp headers={"Authorization": "Bearer ${LINEAR_TOKEN}"} timeout=60s allow=["list_issues"]"#,
            r#"nested: uvx ["nested-server"] timeout=120s"#,
        ],
        &["W 10:5 Unsupported extensions.developer.type"],
    );
}

#[track_caller]
fn detects(file: &str, text: &str, dialect: Dialect) {
    assert_eq!(detect(file, text), dialect, "{file}");
}

#[test]
fn format_is_detected_by_content() {
    let server = r#"{"a": {"command": "x"}}"#;
    detects("x.json", &format!(r#"{{"mcpServers": {server}}}"#), Dialect::McpServers);
    detects("x.json", server, Dialect::McpServers);
    detects("x", &format!(r#"{{"servers": {server}}}"#), Dialect::VsCode);
    detects("x.json", r#"{"mcp": {"a": {"type": "local"}}}"#, Dialect::OpenCode);
    let second = r#"{"mcp": {"servers": {"a": {"type": "remote", "url": "http://x"}}}}"#;
    detects("x.json", second, Dialect::OpenCode);
    detects("x.toml", "[mcp_servers.a]\ncommand = 'x'", Dialect::Codex);
    let both = "[mcp_servers]\n[[defaults.mcp]]\nname = 'a'\n";
    detects("x.toml", both, Dialect::Toolrack);
    detects("x.toml", "", Dialect::Toolrack);
    detects("x", "extensions:\n  a: {}\n", Dialect::Goose);
    let windows = r"C:\Users\me\.cursor\mcp.json";
    detects(windows, r#"{"mcpServers": {}}"#, Dialect::Cursor);
}

#[test]
fn a_bare_map_of_servers_is_read() {
    let reading =
        read("pasted.json", r#"{"a": {"command": "x"}, "b": {"httpUrl": "https://b.dev/mcp"}}"#);
    assert_eq!(format::servers(&reading.value), ["a: x []", "b: https://b.dev/mcp"]);
    assert_eq!(format::diagnostics(&reading.diagnostics), [""; 0]);
}

#[test]
fn foreign_files_are_read_despite_errors() {
    let text = r#"{"mcpServers": {
  "good": {"command": "x", "timeout": -5},
  "typo": {"typ": "http", "url": "nowhere"},
  "both": {"command": "x", "url": "https://x.dev"},
  "word": {"type": "carrier", "command": "x"},
  "good": {"command": "y"}
}}"#;
    let reading = read("mcp.json", text);
    assert_eq!(format::servers(&reading.value), ["word: x []", "good: y []"]);
    assert_eq!(
        format::diagnostics(&reading.diagnostics),
        [
            "W 3:12 Unsupported mcpServers.typo.typ (type?)",
            "E 3:27 Invalid mcpServers.typo.url",
            "E 4:28 Conflict mcpServers.both.url",
            "E 5:12 Invalid mcpServers.word.type",
            "W 6:3 Duplicate good",
        ]
    );
}

#[test]
fn duration_with_a_unit_keeps_it() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "timeout": "90s"}, "b": {"command": "x", "timeout": 90}}}"#;
    let reading = read_as(Dialect::Cline, "x.json", text);
    assert_eq!(format::servers(&reading.value), ["a: x [] timeout=90s", "b: x [] timeout=90s"]);
}

#[test]
fn empty_command_is_ignored_beside_a_url_only() {
    let text = r#"{"mcpServers": {
  "remote": {"command": "", "url": "https://x.dev"},
  "nothing": {"command": ""}
}}"#;
    let reading = read("mcp.json", text);
    assert_eq!(format::servers(&reading.value), ["remote: https://x.dev"]);
    let diagnostics = format::diagnostics(&reading.diagnostics);
    assert_eq!(diagnostics, ["E 3:15 Invalid mcpServers.nothing.command"]);
}

#[test]
fn file_without_servers_is_reported() {
    let diagnostics = |file, text| format::diagnostics(&read(file, text).diagnostics);
    assert_eq!(diagnostics("x.json", "{}"), ["W 1:1 Missing mcpServers"]);
    assert_eq!(diagnostics("x.yaml", "a: 1"), ["W 1:1 Missing extensions"]);
    assert_eq!(diagnostics("x.json", r#"{"mcpServers": []}"#), ["E 1:16 WrongType mcpServers"]);
    assert_eq!(diagnostics("x.json", r#"{"mcpServers": {"#), ["E 1:16 Syntax "]);
}
