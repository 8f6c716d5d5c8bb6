//! Values that look secret, moved out of a config: what goes into the secret store, and what refers to it.

use serde_json::{Value, json};
use toolrack_service::{McpConfig, McpTransport};

use crate::redacted_config::{is_reference, is_secret_name};
use crate::secret_args::{self, Spot};

/// Words before a token in a header, which are no part of it.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// A config without secrets, and the secrets.
pub(crate) struct Stowed {
    pub(crate) config: McpConfig,
    /// Name and value of each secret that the config refers to by its name. Those of variables are moved by the
    /// service itself.
    pub(crate) secrets: Vec<(String, String)>,
    /// The variables, headers, arguments and parameters of the address whose values are moved.
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
        let token = token_of(value);
        if token.is_empty() {
            continue;
        }
        let secret = add(&mut secrets, secret_name(&server, name), token);
        let before = value.strip_suffix(token).unwrap_or_default();
        *place = json!(format!("{before}{secret}"));
        names.push(name.clone());
    }
    let args = config.config.get_mut("args").and_then(Value::as_array_mut);
    for (place, spots) in args.into_iter().flat_map(|it| spots_of(it)) {
        let text = place.as_str().unwrap_or_default().to_owned();
        *place = json!(emptied(text, spots, &server, &mut secrets, &mut names));
    }
    if let McpTransport::Http { url } = &mut config.transport {
        let spots = secret_args::in_url(url);
        *url = emptied(std::mem::take(url), spots, &server, &mut secrets, &mut names);
        config.package.identifier.clone_from(url);
    }
    Stowed { config, secrets, names }
}

/// A text that refers to the secrets which stood in it.
fn emptied(
    mut text: String,
    spots: Vec<Spot>,
    server: &str,
    secrets: &mut Vec<(String, String)>,
    names: &mut Vec<String>,
) -> String {
    // From the end, so that what stands before keeps its place.
    for Spot { name, range } in spots.into_iter().rev() {
        let token = token_of(text.get(range.clone()).unwrap_or_default()).to_owned();
        if token.is_empty() {
            continue;
        }
        let secret = add(secrets, secret_name(server, &name), &token);
        text.replace_range(range.end - token.len()..range.end, &secret);
        names.push(name);
    }
    text
}

/// Each argument, with the secrets in it.
fn spots_of(args: &mut [Value]) -> impl Iterator<Item = (&mut Value, Vec<Spot>)> {
    let texts = args.iter().map(|it| it.as_str().unwrap_or_default().to_owned());
    let texts: Vec<String> = texts.collect();
    let spots: Vec<Vec<Spot>> = secret_args::named(&texts)
        .into_iter()
        .zip(&texts)
        .map(|(named, text)| match named {
            Some(spot) if !is_of_secret(&spot.name) => Vec::new(),
            Some(spot) => vec![spot],
            None => secret_args::in_url(text),
        })
        .collect();
    args.iter_mut().zip(spots)
}

/// Whether a name is that of a secret, and not of something about one such as `--auth-mode` or `--token-file`. The
/// name of an image, before its tag, is neither.
fn is_of_secret(name: &str) -> bool {
    let mut words = name.rsplit(|it: char| !it.is_ascii_alphanumeric());
    !name.contains('/') && words.next().is_some_and(is_secret_name)
}

/// The end of a value that is the secret itself.
fn token_of(value: &str) -> &str {
    let value = value.trim_start();
    SCHEMES.iter().find_map(|it| value.strip_prefix(it)).unwrap_or(value)
}

/// Adds a secret, under another name if that one has another value, and says what refers to it.
fn add(secrets: &mut Vec<(String, String)>, name: String, token: &str) -> String {
    let value = literal(token);
    let is_free = |it: &String| secrets.iter().all(|(name, known)| name != it || *known == value);
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    let name = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name);
    let reference = format!("${{secret:{name}}}");
    secrets.push((name, value));
    reference
}

fn is_plain_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && !value.is_empty() && !is_reference(value)
}

fn literal(value: &str) -> String {
    value.replace("$${", "${")
}

/// A name that a secret may have, made of those of server and header or argument.
fn secret_name(server: &str, header: &str) -> String {
    let header = header.trim_start_matches('-');
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

    #[test]
    fn the_address_keeps_no_secret_either() {
        let document = json!({
            "name": "a", "transport": { "type": "http", "url": "https://h/mcp?api_key=s3cret&q=1" },
            "package": { "package_type": "http", "identifier": "https://h/mcp?api_key=s3cret&q=1" },
        });
        let Stowed { config, secrets, names } = stow(McpConfig::from_json(&document).unwrap());
        let expected = "https://h/mcp?api_key=${secret:a-api_key}&q=1";
        assert_eq!(config.package.identifier, expected);
        assert_eq!(config.transport, McpTransport::Http { url: expected.to_owned() });
        assert_eq!(secrets, [("a-api_key".to_owned(), "s3cret".to_owned())]);
        assert_eq!(names, ["api_key"]);
    }

    #[track_caller]
    fn check_args(given: &[&str], expected: &[&str], secrets: &[(&str, &str)]) {
        let document = json!({
            "name": "a", "transport": "stdio", "config": { "args": given },
            "package": { "package_type": "binary", "identifier": "x" },
        });
        let stowed = stow(McpConfig::from_json(&document).unwrap());
        assert_eq!(stowed.config.config["args"], json!(expected));
        let owned = secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(stowed.secrets, owned.collect::<Vec<_>>());
        assert_eq!(stowed.names.len(), secrets.len());
    }

    #[test]
    fn arguments_are_moved_too() {
        check_args(&["-y", "x", "--token", "${T}"], &["-y", "x", "--token", "${T}"], &[]);
        check_args(&["a/auth:1", "--token="], &["a/auth:1", "--token="], &[]);
        check_args(
            &["--auth-mode=open", "--token-file", "/t"],
            &["--auth-mode=open", "--token-file", "/t"],
            &[],
        );
        check_args(
            &["--token", "s3$${cret", "--api-key=k"],
            &["--token", "${secret:a-token}", "--api-key=${secret:a-api-key}"],
            &[("a-token", "s3${cret"), ("a-api-key", "k")],
        );
        check_args(
            &["--header", "Authorization: Bearer s3cret"],
            &["--header", "Authorization: Bearer ${secret:a-authorization}"],
            &[("a-authorization", "s3cret")],
        );
        check_args(
            &["postgres://u:one@h/db?token=two"],
            &["postgres://u:${secret:a-password}@h/db?token=${secret:a-token}"],
            &[("a-token", "two"), ("a-password", "one")],
        );
        check_args(
            &["TOKEN=one", "token=two"],
            &["TOKEN=${secret:a-token}", "token=${secret:a-token-2}"],
            &[("a-token", "one"), ("a-token-2", "two")],
        );
    }
}
