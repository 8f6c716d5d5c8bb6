//! `toolrack.toml` and Spacebot's config.

use std::time::Duration;

use toolrack_config::{
    ConfigFile, Dialect, McpServerConfig, McpTransport, Position, StartMode, ToolNaming, read,
};

use crate::format;

fn sound(file: &str) -> ConfigFile {
    let (config, warnings) = read(file, &format::sample(file)).accept().expect("a sound file");
    assert_eq!(warnings, [], "{file}");
    config
}

fn names(configs: &[McpServerConfig]) -> Vec<&str> {
    configs.iter().map(|config| config.name.as_str()).collect()
}

#[test]
fn spacebot_config_loads_unchanged() {
    let file = sound("native/spacebot.toml");
    assert_eq!(file.dialect, Dialect::Toolrack);
    assert_eq!(
        format::servers(&file),
        [
            r#"filesystem: npx ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"]"#,
            r#"sentry: https://mcp.sentry.io headers={"Authorization": "Bearer ${SENTRY_TOKEN}"}"#,
            r#"main/postgres: npx ["-y", "@modelcontextprotocol/server-postgres", "postgresql://..."]"#,
            "ops/sentry: off https://sentry.internal/mcp",
        ]
    );
}

#[test]
fn agents_append_to_the_defaults_and_override_by_name() {
    let file = sound("native/spacebot.toml");
    assert_eq!(names(&file.resolve("main")), ["filesystem", "sentry", "postgres"]);
    let ops = file.resolve("ops");
    assert_eq!(names(&ops), ["filesystem", "sentry"]);
    assert!(!ops[1].enabled);
    assert_eq!(names(&file.resolve("nobody")), ["filesystem", "sentry"]);
    assert_eq!(file.resolve("nobody"), file.resolve_defaults());
}

#[test]
fn our_own_file_says_more() {
    let file = sound("native/toolrack.toml");
    assert_eq!(file.names(), ToolNaming { separator: "__".to_owned(), limit: 128 });
    assert_eq!(
        format::servers(&file),
        [
            r#"filesystem: npx ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"] cwd=${HOME}/work start=Lazy idle=Some(600s) deny=["write_*", "delete_*"] sandbox=Sandbox { read: None, write: ["/workspace"], net: false }"#,
            r#"sentry: https://mcp.sentry.io headers={"Authorization": "Bearer ${SENTRY_TOKEN}"} timeout=90s"#,
            r#"git: pypi mcp-server-git@Some("2026.10.19") ["--repository", "."] env={"LEVEL": "info", "TOKEN": "secret git-token"}"#,
            r#"main/postgres: uvx ["postgres-mcp"] env={"DATABASE_URI": "secret postgres-url"}"#,
        ]
    );
}

#[test]
fn unset_values_come_from_the_defaults() {
    let text = "
        [defaults]
        timeout = '20s'
        max_timeout = '10s'
        idle = '5m'
        start = 'lazy'
        [[defaults.mcp]]
        name = 'a'
        command = 'x'
        [[defaults.mcp]]
        name = 'b'
        command = 'x'
        timeout = '1s'
        idle = 'never'
        start = 'eager'
    ";
    let servers = read("t.toml", text).accept().expect("a sound file").0.resolve("any");
    let plain = McpServerConfig::stdio("a", "x", &[]);
    let expected = McpServerConfig {
        timeout: Duration::from_secs(20),
        max_timeout: Duration::from_secs(20),
        idle: Some(Duration::from_mins(5)),
        start: StartMode::Lazy,
        ..plain.clone()
    };
    assert_eq!(servers[0], expected);
    let expected = McpServerConfig {
        name: "b".to_owned(),
        timeout: Duration::from_secs(1),
        max_timeout: Duration::from_secs(10),
        idle: None,
        ..plain
    };
    assert_eq!(servers[1], expected);
}

#[test]
fn founding_document_example_is_parsed() {
    let file = sound("native/spacebot.toml");
    let filesystem = &file.resolve("main")[0];
    let args = ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"];
    assert_eq!(*filesystem, McpServerConfig::stdio("filesystem", "npx", &args));
}

#[test]
fn every_entry_has_a_source_location() {
    let file = sound("native/toolrack.toml");
    let git = &file.resolve("main")[2].origin;
    assert_eq!(git.file().as_deref(), Some("native/toolrack.toml"));
    assert_eq!(git.path(), "defaults.mcp[2]");
    let at = |line, column| Some(Position { line, column });
    assert_eq!(git.at().map(|at| at.line), Some(29));
    assert_eq!(git.field("env.TOKEN"), at(32, 9));
    assert_eq!(git.field("package.args[1]"), at(31, 107));
    assert_eq!(git.field("package.unknown"), at(31, 1));
    assert_eq!(git.field("unknown").map(|unknown| unknown.line), Some(29));
}

#[test]
fn project_overlays_user_config() {
    let user = sound("native/toolrack.toml");
    let text = "
        [defaults]
        timeout = '5s'
        name_separator = '_'
        [[defaults.mcp]]
        name = 'git'
        url = 'https://git.example/mcp'
        [[defaults.mcp]]
        name = 'own'
        command = 'own'
        [[agents]]
        id = 'main'
        [[agents.mcp]]
        name = 'postgres'
        command = 'other'
    ";
    let project = read(".toolrack.toml", text).accept().expect("a sound file").0;
    let both = user.overlay(project);
    let servers = both.resolve("main");
    assert_eq!(names(&servers), ["filesystem", "sentry", "git", "own", "postgres"]);
    assert_eq!(servers[0].timeout, Duration::from_secs(5));
    assert!(matches!(servers[2].transport, McpTransport::Http { .. }));
    assert!(
        matches!(&servers[4].transport, McpTransport::Stdio { command, .. } if command == "other")
    );
    assert_eq!(both.names(), ToolNaming { separator: "_".to_owned(), limit: 128 });
}
