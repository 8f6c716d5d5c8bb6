//! At which layer a start ended, and what usually helps there.

use toolrack_config::McpServerConfig;
use toolrack_manager::FailureKind;

use crate::auth_hints::change_token;
use crate::exit_code::Verdict;
use crate::suggested_command::word;

/// The layer at which a kind of failure happens, its exit code, and what usually helps.
pub(super) fn judge(
    kind: Option<FailureKind>,
    server: &McpServerConfig,
) -> (&'static str, Verdict, String) {
    let typed = word(&server.name);
    let logs = format!("`toolrack logs {typed}` shows what it wrote");
    match kind {
        Some(
            FailureKind::MissingTool
            | FailureKind::PackageNotFound
            | FailureKind::InstallFailed
            | FailureKind::InstallTimedOut
            | FailureKind::DockerNotRunning,
        ) => (
            "package",
            Verdict::Unreachable,
            format!("`toolrack edit {typed}` changes the package"),
        ),
        Some(FailureKind::BadConfig | FailureKind::MissingCredentials) => {
            ("values", Verdict::Config, format!("`toolrack edit {typed}` changes it"))
        }
        Some(FailureKind::NeedsLogin) if server.has_authorization() => {
            ("login", Verdict::Auth, change_token(server))
        }
        Some(FailureKind::NeedsLogin) => {
            ("login", Verdict::Auth, format!("`toolrack login {typed}`"))
        }
        Some(FailureKind::Unreachable) => (
            "reach",
            Verdict::Unreachable,
            format!("check the address with `toolrack get {typed}`, the network, and the proxy"),
        ),
        Some(FailureKind::HandshakeTimedOut) => (
            "handshake",
            Verdict::Unreachable,
            format!("it may be no MCP server, or need a longer `startup_timeout`; {logs}"),
        ),
        Some(FailureKind::Refused) => {
            ("handshake", Verdict::Unreachable, format!("it may be no MCP server; {logs}"))
        }
        _ => ("start", Verdict::Unreachable, logs),
    }
}

#[cfg(test)]
mod tests {
    use toolrack_config::McpTransport;

    use super::*;

    #[track_caller]
    fn check(kind: FailureKind, layer: &str, verdict: Verdict) {
        let server = McpServerConfig::http("it", "http://host/mcp");
        let (found, code, fix) = judge(Some(kind), &server);
        assert_eq!((found, code), (layer, verdict), "{kind:?}");
        assert!(fix.contains("it"), "{fix}");
    }

    #[test]
    fn every_failure_has_a_layer_and_a_fix() {
        check(FailureKind::MissingTool, "package", Verdict::Unreachable);
        check(FailureKind::BadConfig, "values", Verdict::Config);
        check(FailureKind::NeedsLogin, "login", Verdict::Auth);
        check(FailureKind::Unreachable, "reach", Verdict::Unreachable);
        check(FailureKind::HandshakeTimedOut, "handshake", Verdict::Unreachable);
        check(FailureKind::Exited, "start", Verdict::Unreachable);
        let mut server = McpServerConfig::http("it", "http://host/mcp");
        if let McpTransport::Http { headers, .. } = &mut server.transport {
            headers.insert("authorization".to_owned(), "Bearer ${TOKEN}".to_owned());
        }
        let (_, _, fix) = judge(Some(FailureKind::NeedsLogin), &server);
        assert_eq!(fix, "change the token in its headers with `toolrack edit it`");
    }
}
