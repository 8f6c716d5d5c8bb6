//! What to do about a server that does not let us in.

use toolrack_config::{McpServerConfig, McpTransport, without_secrets};

use crate::suggested_command::word;

/// For a server that was typed: logins are kept for servers of the config. A token that was typed was refused, which
/// is another matter.
pub(crate) fn how_to_log_in(server: &McpServerConfig) -> Option<String> {
    let McpTransport::Http { url, .. } = &server.transport else { return None };
    if server.has_authorization() {
        return None;
    }
    let url = without_secrets(url);
    Some(format!(
        "add it, `toolrack add NAME {url}`, then run `toolrack login NAME`; or give a token: \
         `--header 'Authorization: Bearer ${{TOKEN}}'`"
    ))
}

/// For a server of the config that refuses what its headers say: nobody can log in there.
pub(crate) fn change_token(server: &McpServerConfig) -> String {
    format!("change the token in its headers with `toolrack edit {}`", word(&server.name))
}
