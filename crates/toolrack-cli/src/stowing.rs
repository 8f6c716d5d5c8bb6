//! Values that look secret, moved out of a config: what goes into the secret store, and what refers to it.

use serde_json::{Value, json};
use toolrack_service::McpConfig;

use crate::discreet::{is_reference, is_secret_name};

/// Words before a token in a header, which are no part of it.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// A config without secrets, and the secrets.
pub(crate) struct Stowed {
    pub(crate) config: McpConfig,
    /// Name and value of each secret that the config refers to by its name. Those of variables are moved by the
    /// service itself.
    pub(crate) secrets: Vec<(String, String)>,
    /// The variables and headers whose values are moved.
    pub(crate) names: Vec<String>,
}

/// Moves values that look secret out of a config.
pub(crate) fn stow(mut config: McpConfig) -> Stowed {
    let (mut secrets, mut names) = (Vec::new(), Vec::new());
    for (name, variable) in &mut config.env_vars {
        let Some(value) = variable.value.as_mut().filter(|it| is_plain_secret(name, it)) else {
            continue;
        };
        // A secret is taken as it is, so what was written to mean itself has to become that.
        *value = literal(value);
        variable.is_secret = true;
        variable.required = true;
        names.push(name.clone());
    }
    let server = config.name.clone();
    let headers = config.config.get_mut("headers").and_then(Value::as_object_mut);
    for (name, place) in headers.into_iter().flatten() {
        let Some(value) = place.as_str().filter(|it| is_plain_secret(name, it)) else { continue };
        let scheme = SCHEMES.iter().find(|it| value.starts_with(**it)).copied().unwrap_or_default();
        let secret = secret_name(&server, name);
        let token = value.strip_prefix(scheme).unwrap_or(value);
        secrets.push((secret.clone(), literal(token)));
        *place = json!(format!("{scheme}${{secret:{secret}}}"));
        names.push(name.clone());
    }
    Stowed { config, secrets, names }
}

fn is_plain_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && !value.is_empty() && !is_reference(value)
}

fn literal(value: &str) -> String {
    value.replace("$${", "${")
}

/// A name that a secret may have, made of those of server and header.
fn secret_name(server: &str, header: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '_' { it } else { '-' };
    let name: String = format!("{server}-{header}").chars().map(plain).take(100).collect();
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_secret_are_moved_and_others_stay() {
        let document = json!({
            "name": "My Server", "transport": { "type": "http", "url": "https://h" },
            "package": { "package_type": "http", "identifier": "https://h" },
            "config": { "headers": {
                "Authorization": "Bearer s3cret", "X-Api-Key": "${KEY}", "X-Trace": "1", "Cookie": "a$${b",
            } },
        });
        let stowed = stow(McpConfig::from_json(&document).unwrap());
        assert_eq!(
            stowed.config.config["headers"],
            json!({
                "Authorization": "Bearer ${secret:my-server-authorization}",
                "Cookie": "${secret:my-server-cookie}",
                "X-Api-Key": "${KEY}",
                "X-Trace": "1",
            })
        );
        let secrets = [("my-server-authorization", "s3cret"), ("my-server-cookie", "a${b")];
        assert_eq!(stowed.secrets, secrets.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(stowed.names, ["Authorization", "Cookie"]);
    }

    #[test]
    fn variables_are_marked_for_the_service() {
        let document = json!({
            "name": "a", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": "x" },
            "env_vars": { "A_TOKEN": "s3$${cret", "B_TOKEN": "${B}", "LEVEL": "info", "C_KEY": "" },
        });
        let stowed = stow(McpConfig::from_json(&document).unwrap());
        assert_eq!((stowed.names, stowed.secrets), (vec!["A_TOKEN".to_owned()], Vec::new()));
        let variable = |name: &str| {
            let it = &stowed.config.env_vars[name];
            (it.is_secret, it.value.clone().unwrap())
        };
        assert_eq!(variable("A_TOKEN"), (true, "s3${cret".to_owned()));
        assert_eq!(variable("B_TOKEN"), (false, "${B}".to_owned()));
        assert_eq!(variable("LEVEL"), (false, "info".to_owned()));
    }
}
