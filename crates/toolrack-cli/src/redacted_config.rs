//! A configured server as it may be seen by whoever looks over a shoulder: without what people put into arguments,
//! variables and headers to keep it secret.

use serde_json::{Value, json};
use toolrack_config::without_secrets;
use toolrack_service::{McpConfig, McpPackageType};
use toolrack_transport::plain_text;

use crate::secret_args::named;

const MOST_CHARS: usize = 2000;
/// What stands for a value that is not shown.
const HIDDEN: &str = "…";
/// Words in the names of things that are secret.
const SECRET_WORDS: [&str; 17] = [
    "token",
    "tokens",
    "secret",
    "secrets",
    "password",
    "passwd",
    "pass",
    "pwd",
    "key",
    "keys",
    "apikey",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "pat",
];
/// The same where words are not set apart.
const SECRET_PARTS: [&str; 5] = ["token", "secret", "password", "apikey", "authorization"];

/// Whether values that stand in the config file are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Hidden,
    Shown,
}

/// Whether something with this name is probably secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.split(|it: char| !it.is_ascii_alphanumeric());
    words.any(|it| SECRET_WORDS.contains(&it)) || SECRET_PARTS.iter().any(|it| lower.contains(it))
}

/// Whether a text refers to something else, so that it can be shown.
pub(crate) fn is_reference(text: &str) -> bool {
    text.replace("$${", "").contains("${")
}

/// What is run or reached, on one line.
pub(crate) fn target(config: &McpConfig) -> String {
    let package = &config.package;
    let identifier = match (&package.package_type, &package.version) {
        (McpPackageType::Http, _) => return shown(&without_secrets(&package.identifier)),
        (_, None) => package.identifier.clone(),
        (McpPackageType::Docker, Some(version)) => format!("{}:{version}", package.identifier),
        (_, Some(version)) => format!("{}@{version}", package.identifier),
    };
    let words = args(&texts(config.config.get("args")));
    shown(&std::iter::once(identifier).chain(words).collect::<Vec<_>>().join(" "))
}

/// A text of a config file on one line, which may be a stranger's that was taken over.
pub(crate) fn shown(text: &str) -> String {
    plain_text(text, MOST_CHARS)
}

/// How it is talked to, in one word: `npm`, `pypi`, `docker`, `stdio` or `http`.
pub(crate) fn way(config: &McpConfig) -> &'static str {
    match config.package.package_type {
        McpPackageType::Npm => "npm",
        McpPackageType::Pypi => "pypi",
        McpPackageType::Docker => "docker",
        McpPackageType::Binary => "stdio",
        McpPackageType::Http => "http",
    }
}

/// The whole config as a document.
pub(crate) fn document(config: &McpConfig, values: Values) -> Value {
    let mut document = json!(config);
    if values == Values::Shown {
        return document;
    }
    let variables = document.get_mut("env_vars").and_then(Value::as_object_mut);
    for variable in variables.into_iter().flat_map(|it| it.values_mut()) {
        if let Some(value) = variable.get_mut("value") {
            hide(value);
        }
    }
    let rest = document.get_mut("config");
    if let Some(headers) = rest.and_then(|it| it.get_mut("headers")?.as_object_mut()) {
        headers.values_mut().for_each(hide);
    }
    if let Some(place) = document.get_mut("config").and_then(|it| it.get_mut("args")) {
        *place = json!(args(&texts(Some(place))));
    }
    for pointer in ["/package/identifier", "/transport/url"] {
        if let Some(Value::String(url)) = document.pointer_mut(pointer) {
            *url = plain_url(url);
        }
    }
    document
}

fn hide(value: &mut Value) {
    if !value.as_str().is_some_and(is_reference) {
        *value = json!(HIDDEN);
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn plain_url(text: &str) -> String {
    if text.contains("://") { without_secrets(text) } else { text.to_owned() }
}

/// Arguments without what follows a name that says it is secret.
fn args(args: &[String]) -> Vec<String> {
    let each = args.iter().zip(named(args)).map(|(arg, secret)| match secret {
        Some(secret) => {
            let before = arg.get(..secret.range.start).unwrap_or_default();
            format!("{before}{HIDDEN}")
        }
        None if is_reference(arg) => arg.clone(),
        None => plain_url(arg),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in ["GITHUB_TOKEN", "api-key", "X-Api-Key", "Authorization", "DB_PASSWORD"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["OPENAI_API_KEY", "--auth", "githubToken", "Cookie", "GH_PAT"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "LOG_LEVEL", "AUTHOR", "KEYBOARD", "X-Trace", "--path", "MONKEY"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[track_caller]
    fn check_args(given: &[&str], expected: &[&str]) {
        let given: Vec<String> = given.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(args(&given), expected);
    }

    #[test]
    fn arguments_are_shown_without_secrets() {
        check_args(&["-y", "server", "/work"], &["-y", "server", "/work"]);
        check_args(&["--token", "s3cret", "x"], &["--token", "…", "x"]);
        check_args(&["--token=s3cret", "--token=${T}"], &["--token=…", "--token=${T}"]);
        check_args(&["--token", "${T}"], &["--token", "${T}"]);
        check_args(&["--region=${secret:region}"], &["--region=${secret:region}"]);
        check_args(&["--auth", "--verbose"], &["--auth", "--verbose"]);
        check_args(&["-e", "API_KEY=s3cret"], &["-e", "API_KEY=…"]);
        check_args(&["Authorization: Bearer s3cret"], &["Authorization:…"]);
        check_args(&["postgresql://u:s3cret@h/db?x=s3cret"], &["postgresql://…@h/db"]);
        check_args(&["postgresql://u:s3cret@h/db?token=s3cret"], &["postgresql://…@h/db"]);
    }

    fn config(document: Value) -> McpConfig {
        McpConfig::from_json(&document).unwrap()
    }

    #[test]
    fn a_server_is_told_on_one_line() {
        let npm = config(json!({
            "name": "a", "transport": "stdio", "config": { "args": ["--key=s3cret"] },
            "package": { "package_type": "npm", "identifier": "@a/b", "version": "1" },
        }));
        assert_eq!((target(&npm).as_str(), way(&npm)), ("@a/b@1 --key=…", "npm"));
        let http = config(json!({
            "name": "a", "transport": { "type": "http", "url": "https://h/mcp?k=s3cret" },
            "package": { "package_type": "http", "identifier": "https://h/mcp?k=s3cret" },
            "config": { "headers": { "A": "s3cret", "B": "Bearer ${T}" } },
        }));
        assert_eq!((target(&http).as_str(), way(&http)), ("https://h/mcp", "http"));
        let shown = document(&http, Values::Hidden);
        assert!(!shown.to_string().contains("s3cret"), "{shown}");
        assert_eq!(shown["config"]["headers"], json!({ "A": "…", "B": "Bearer ${T}" }));
        assert!(document(&http, Values::Shown).to_string().contains("s3cret"));
    }
}
