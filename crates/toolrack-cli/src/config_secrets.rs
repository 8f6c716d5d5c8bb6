//! Secrets in server configs: detection by name, redaction for display, and extraction into the
//! secret store.
//!
//! Detection covers environment variables, headers, command-line arguments and URLs.
//!
//! **Invariant:** a `${…}` reference is not a secret, and is shown as it is.

use std::ops::Range;

use serde_json::{Value, json};
use toolrack_config::without_secrets;
use toolrack_service::{McpConfig, McpPackageType, McpTransport};
use toolrack_transport::sanitize_line;

const MAX_CHARS: usize = 2000;
/// Replacement for a redacted value.
const HIDDEN: &str = "…";
/// Words that mark a name as secret.
const SECRET_WORDS: [&str; 10] =
    ["passwd", "pass", "pwd", "key", "keys", "auth", "credential", "credentials", "cookie", "pat"];
/// The same, also within a word such as `githubToken`.
const SECRET_PARTS: [&str; 5] = ["token", "secret", "password", "apikey", "authorization"];

/// Whether the name suggests a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    // Whole words, so that `keyboard` or `monkey` is not taken for a key.
    words.any(|word| SECRET_WORDS.contains(&word))
        || SECRET_PARTS.iter().any(|part| lower.contains(part))
}

/// Whether the text contains a `${…}` reference.
pub(crate) fn is_reference(text: &str) -> bool {
    text.replace("$${", "").contains("${")
}

/// The command, package or URL on one line, without secrets.
pub(crate) fn target(config: &McpConfig) -> String {
    let package = &config.package;
    let identifier = match (&package.package_type, &package.version) {
        (McpPackageType::Http, _) => return display_line(&without_secrets(&package.identifier)),
        (_, None) => package.identifier.clone(),
        (McpPackageType::Docker, Some(version)) => format!("{}:{version}", package.identifier),
        (_, Some(version)) => format!("{}@{version}", package.identifier),
    };
    let words = redact_args(&strings(config.config.get("args")));
    display_line(&std::iter::once(identifier).chain(words).collect::<Vec<_>>().join(" "))
}

/// One sanitized line; the text may come from another tool's config.
pub(crate) fn display_line(text: &str) -> String {
    sanitize_line(text, MAX_CHARS)
}

/// The transport as printed: `npm`, `pypi`, `docker`, `stdio` or `http`.
pub(crate) fn transport_name(config: &McpConfig) -> &'static str {
    match config.package.package_type {
        McpPackageType::Npm => "npm",
        McpPackageType::Pypi => "pypi",
        McpPackageType::Docker => "docker",
        McpPackageType::Binary => "stdio",
        McpPackageType::Http => "http",
    }
}

/// The config as JSON, with values redacted that may be secret.
pub(crate) fn redacted_document(config: &McpConfig) -> Value {
    let mut document = json!(config);
    if let Some(Value::Object(variables)) = document.get_mut("env_vars") {
        let values = variables.values_mut().filter_map(|variable| variable.get_mut("value"));
        values.for_each(redact_value);
    }
    if let Some(Value::Object(headers)) = document.pointer_mut("/config/headers") {
        headers.values_mut().for_each(redact_value);
    }
    if let Some(args) = document.pointer_mut("/config/args") {
        *args = json!(redact_args(&strings(Some(args))));
    }
    for pointer in ["/package/identifier", "/transport/url"] {
        if let Some(Value::String(url)) = document.pointer_mut(pointer) {
            *url = redact_url(url);
        }
    }
    document
}

fn redact_value(value: &mut Value) {
    if !value.as_str().is_some_and(is_reference) {
        *value = json!(HIDDEN);
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn redact_url(text: &str) -> String {
    if text.contains("://") { without_secrets(text) } else { text.to_owned() }
}

/// Arguments with secrets redacted.
fn redact_args(args: &[String]) -> Vec<String> {
    let each = args.iter().zip(find_in_args(args)).map(|(arg, secret)| match secret {
        Some(secret) => {
            let before = arg.get(..secret.range.start).unwrap_or_default();
            format!("{before}{HIDDEN}")
        }
        None if is_reference(arg) => arg.clone(),
        None => redact_url(arg),
    });
    each.collect()
}

/// A secret within an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SecretSpan {
    name: String,
    range: Range<usize>,
}

/// For each argument its secret, if it has one: the value after `--token`, and the end of
/// `--token=x`, of `NAME=x` (`docker -e`) and of `Authorization: x` (`--header`).
fn find_in_args(args: &[String]) -> Vec<Option<SecretSpan>> {
    let mut awaited: Option<String> = None;
    let each = args.iter().map(|arg| {
        // `--token --verbose`: the second word is another option and not the value.
        let flag = awaited.take().filter(|_| !arg.starts_with('-'));
        if is_reference(arg) {
            return None;
        }
        if let Some(flag) = flag {
            return Some(SecretSpan { name: flag, range: 0..arg.len() });
        }
        let is_flag = arg.starts_with('-') && !arg.contains('=') && is_secret_name(arg);
        awaited = is_flag.then(|| arg.clone());
        let mut names =
            ['=', ':'].into_iter().filter_map(|separator| Some(arg.split_once(separator)?.0));
        // Secrets in URLs are found by `find_in_url`.
        let name = names.find(|name| is_secret_name(name) && !name.contains("://"))?;
        Some(SecretSpan { name: name.to_owned(), range: name.len() + 1..arg.len() })
    });
    each.collect()
}

/// Secrets in an argument that is or ends with a URL: the password, and query parameters with a
/// secret name.
fn find_in_url(arg: &str) -> Vec<SecretSpan> {
    if is_reference(arg) {
        return Vec::new();
    }
    let Some((before, rest)) = arg.split_once("://") else { return Vec::new() };
    let start = before.len() + "://".len();
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = path.split(['/', '#']).next().unwrap_or_default();
    // The last `@`, because a password may contain one.
    let userinfo = authority.rsplit_once('@').map_or("", |(userinfo, _)| userinfo);
    let password = userinfo.split_once(':').map(|(user, password)| SecretSpan {
        name: "password".to_owned(),
        range: start + user.len() + 1..start + user.len() + 1 + password.len(),
    });
    let mut at = start + path.len() + 1;
    let query = query.split('#').next().unwrap_or_default();
    let members = query.split('&').filter_map(|member| {
        let here = at;
        at += member.len() + 1;
        let (name, _) = member.split_once('=').filter(|(name, _)| is_secret_name(name))?;
        Some(SecretSpan {
            name: name.to_owned(),
            range: here + name.len() + 1..here + member.len(),
        })
    });
    password.into_iter().chain(members).collect()
}

/// Authentication schemes, which are not part of the token.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// A config whose secrets have been extracted.
pub(crate) struct ExtractedSecrets {
    pub(crate) config: McpConfig,
    /// Name and value of each secret that the config now refers to. The service moves secrets of
    /// environment variables itself.
    pub(crate) secrets: Vec<(String, String)>,
    /// Names of the variables, headers, arguments and query parameters concerned.
    pub(crate) names: Vec<String>,
}

/// Replaces secret-looking values with references.
pub(crate) fn extract_secrets(config: McpConfig) -> ExtractedSecrets {
    let mut found = ExtractedSecrets { config, secrets: Vec::new(), names: Vec::new() };
    for (name, variable) in &mut found.config.env_vars {
        if let Some(value) = variable.value.as_mut().filter(|value| is_plain_secret(name, value)) {
            // The store keeps values literally, so an escaped `$${` is unescaped.
            *value = unescape(value);
            variable.is_secret = true;
            variable.required = true;
            found.names.push(name.clone());
        }
    }
    // Taken out and put back, because `replace` changes the rest of `found`.
    let mut rest = std::mem::take(&mut found.config.config);
    let headers = rest.get_mut("headers").and_then(Value::as_object_mut);
    for (name, place) in headers.into_iter().flatten() {
        if let Some(value) = place.as_str().filter(|value| is_plain_secret(name, value)) {
            let span = SecretSpan { name: name.clone(), range: 0..value.len() };
            *place = json!(found.replace(value.to_owned(), vec![span]));
        }
    }
    if let Some(Value::Array(args)) = rest.get_mut("args") {
        let texts = args.iter().map(|arg| arg.as_str().unwrap_or_default().to_owned());
        let texts: Vec<String> = texts.collect();
        for ((place, named), text) in args.iter_mut().zip(find_in_args(&texts)).zip(&texts) {
            let spans = match named {
                // Redaction may be generous, but a wrong extraction would break the server.
                Some(span) if !is_secret_flag(&span.name) => continue,
                Some(span) => vec![span],
                None => find_in_url(text),
            };
            *place = json!(found.replace(text.clone(), spans));
        }
    }
    found.config.config = rest;
    if let McpTransport::Http { url } = found.config.transport.clone() {
        let spans = find_in_url(&url);
        let url = found.replace(url, spans);
        // Both hold the URL; if they differed, the entry would be written as a package.
        found.config.package.identifier.clone_from(&url);
        found.config.transport = McpTransport::Http { url };
    }
    found
}

impl ExtractedSecrets {
    /// Replaces secrets in a text with references.
    fn replace(&mut self, mut text: String, spans: Vec<SecretSpan>) -> String {
        // Backwards, so that earlier ranges stay valid.
        for SecretSpan { name, range } in spans.into_iter().rev() {
            let token = strip_scheme(text.get(range.clone()).unwrap_or_default()).to_owned();
            if token.is_empty() {
                continue;
            }
            let (secret, value) = (secret_name(&self.config.name, &name), unescape(&token));
            // A name that is taken by another value gets a number.
            let is_free = |candidate: &String| {
                self.secrets.iter().all(|(name, known)| name != candidate || *known == value)
            };
            let numbered = (2..).map(|n| format!("{secret}-{n}"));
            let mut candidates = std::iter::once(secret.clone()).chain(numbered);
            let secret = candidates.find(is_free).unwrap_or(secret);
            let reference = format!("${{secret:{secret}}}");
            text.replace_range(range.end - token.len()..range.end, &reference);
            self.secrets.push((secret, value));
            self.names.push(name);
        }
        text
    }
}

/// Whether the last word of the name is secret: `--token`, but not `--auth-mode` or `--token-file`.
/// A name with `/` is that of an image before its tag.
fn is_secret_flag(name: &str) -> bool {
    let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric());
    !name.contains('/') && words.next().is_some_and(is_secret_name)
}

/// The value without its authentication scheme.
fn strip_scheme(value: &str) -> &str {
    let value = value.trim_start();
    SCHEMES.iter().find_map(|scheme| value.strip_prefix(scheme)).unwrap_or(value)
}

fn is_plain_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && !value.is_empty() && !is_reference(value)
}

fn unescape(value: &str) -> String {
    value.replace("$${", "${")
}

/// A secret's name, made of the names of the server and the header or argument.
fn secret_name(server: &str, header: &str) -> String {
    let header = header.trim_start_matches('-');
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = format!("{server}-{header}").chars().map(plain).take(100).collect();
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_detected() {
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
        let given: Vec<String> = given.iter().map(|&arg| arg.to_owned()).collect();
        assert_eq!(redact_args(&given), expected);
    }

    #[test]
    fn secrets_in_arguments_are_redacted() {
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
    fn target_is_one_line_without_secrets() {
        let npm = config(json!({
            "name": "a", "transport": "stdio", "config": { "args": ["--key=s3cret"] },
            "package": { "package_type": "npm", "identifier": "@a/b", "version": "1" },
        }));
        assert_eq!((target(&npm).as_str(), transport_name(&npm)), ("@a/b@1 --key=…", "npm"));
        let http = config(json!({
            "name": "a", "transport": { "type": "http", "url": "https://h/mcp?k=s3cret" },
            "package": { "package_type": "http", "identifier": "https://h/mcp?k=s3cret" },
            "config": { "headers": { "A": "s3cret", "B": "Bearer ${T}" } },
        }));
        assert_eq!((target(&http).as_str(), transport_name(&http)), ("https://h/mcp", "http"));
        let shown = redacted_document(&http);
        assert!(!shown.to_string().contains("s3cret"), "{shown}");
        assert_eq!(shown["config"]["headers"], json!({ "A": "…", "B": "Bearer ${T}" }));
        assert!(json!(http).to_string().contains("s3cret"));
    }

    /// Names and values of secrets, for comparison.
    fn describe<'a>(arg: &str, spans: impl IntoIterator<Item = &'a SecretSpan>) -> String {
        let each =
            spans.into_iter().map(|span| format!("{}→{}", span.name, &arg[span.range.clone()]));
        each.collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(args: &[&str], expected: &[&str]) {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let spans = find_in_args(&args);
        let found = args.iter().zip(&spans).map(|(arg, span)| describe(arg, span));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn secrets_in_arguments_are_found() {
        check(&["-y", "server", "/work"], &["", "", ""]);
        check(&["--token", "s3cret", "x"], &["", "--token→s3cret", ""]);
        check(&["--token=s3cret", "--token=${T}"], &["--token→s3cret", ""]);
        check(&["--token", "${T}", "x"], &["", "", ""]);
        check(&["--auth", "--verbose", "x"], &["", "", ""]);
        check(&["-e", "API_KEY=s3cret"], &["", "API_KEY→s3cret"]);
        check(&["Authorization: Bearer s3cret"], &["Authorization→ Bearer s3cret"]);
        check(&["https://token@h/?token=s3cret"], &[""]);
    }

    #[track_caller]
    fn check_url(arg: &str, expected: &str) {
        assert_eq!(describe(arg, &find_in_url(arg)), expected);
    }

    #[test]
    fn secrets_in_urls_are_found() {
        check_url("postgresql://u:s3cret@h:5432/db", "password→s3cret");
        check_url("--dsn=postgresql://u:s3cret@h", "password→s3cret");
        check_url("https://h/mcp?a=1&api_key=s3cret&b=2#x", "api_key→s3cret");
        check_url("https://u:p@h?token=s3cret", "password→p, token→s3cret");
        check_url("https://u@h:80/a:b@c?x=1", "");
        check_url("https://u:${P}@h", "");
        check_url("u:p@h", "");
    }

    #[test]
    fn secret_headers_are_extracted() {
        let document = json!({
            "name": "My Server", "transport": { "type": "http", "url": "https://h" },
            "package": { "package_type": "http", "identifier": "https://h" },
            "config": { "headers": {
                "Authorization": "Bearer s3cret", "X-Api-Key": "${KEY}", "X-Trace": "1", "Cookie": "a$${b",
            } },
        });
        let extracted = extract_secrets(McpConfig::from_json(&document).unwrap());
        assert_eq!(
            extracted.config.config["headers"],
            json!({
                "Authorization": "Bearer ${secret:my-server-authorization}",
                "Cookie": "${secret:my-server-cookie}",
                "X-Api-Key": "${KEY}",
                "X-Trace": "1",
            })
        );
        let secrets = [("my-server-authorization", "s3cret"), ("my-server-cookie", "a${b")];
        assert_eq!(extracted.secrets, secrets.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(extracted.names, ["Authorization", "Cookie"]);
    }

    #[test]
    fn secret_variables_are_marked() {
        let document = json!({
            "name": "a", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": "x" },
            "env_vars": { "A_TOKEN": "s3$${cret", "B_TOKEN": "${B}", "LEVEL": "info", "C_KEY": "" },
        });
        let extracted = extract_secrets(McpConfig::from_json(&document).unwrap());
        assert_eq!((extracted.names, extracted.secrets), (vec!["A_TOKEN".to_owned()], Vec::new()));
        let variable = |name: &str| {
            let variable = &extracted.config.env_vars[name];
            (variable.is_secret, variable.value.clone().unwrap())
        };
        assert_eq!(variable("A_TOKEN"), (true, "s3${cret".to_owned()));
        assert_eq!(variable("B_TOKEN"), (false, "${B}".to_owned()));
        assert_eq!(variable("LEVEL"), (false, "info".to_owned()));
    }

    #[test]
    fn secrets_in_the_url_are_extracted() {
        let document = json!({
            "name": "a", "transport": { "type": "http", "url": "https://h/mcp?api_key=s3cret&q=1" },
            "package": { "package_type": "http", "identifier": "https://h/mcp?api_key=s3cret&q=1" },
        });
        let ExtractedSecrets { config, secrets, names } =
            extract_secrets(McpConfig::from_json(&document).unwrap());
        let expected = "https://h/mcp?api_key=${secret:a-api_key}&q=1";
        assert_eq!(config.package.identifier, expected);
        assert_eq!(config.transport, McpTransport::Http { url: expected.to_owned() });
        assert_eq!(secrets, [("a-api_key".to_owned(), "s3cret".to_owned())]);
        assert_eq!(names, ["api_key"]);
    }

    #[track_caller]
    fn check_args_extract_secrets(given: &[&str], expected: &[&str], secrets: &[(&str, &str)]) {
        let document = json!({
            "name": "a", "transport": "stdio", "config": { "args": given },
            "package": { "package_type": "binary", "identifier": "x" },
        });
        let extracted = extract_secrets(McpConfig::from_json(&document).unwrap());
        assert_eq!(extracted.config.config["args"], json!(expected));
        let owned = secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(extracted.secrets, owned.collect::<Vec<_>>());
        assert_eq!(extracted.names.len(), secrets.len());
    }

    #[test]
    fn secrets_in_arguments_are_extracted() {
        check_args_extract_secrets(
            &["-y", "x", "--token", "${T}"],
            &["-y", "x", "--token", "${T}"],
            &[],
        );
        check_args_extract_secrets(&["a/auth:1", "--token="], &["a/auth:1", "--token="], &[]);
        check_args_extract_secrets(
            &["--auth-mode=open", "--token-file", "/t"],
            &["--auth-mode=open", "--token-file", "/t"],
            &[],
        );
        check_args_extract_secrets(
            &["--token", "s3$${cret", "--api-key=k"],
            &["--token", "${secret:a-token}", "--api-key=${secret:a-api-key}"],
            &[("a-token", "s3${cret"), ("a-api-key", "k")],
        );
        check_args_extract_secrets(
            &["--header", "Authorization: Bearer s3cret"],
            &["--header", "Authorization: Bearer ${secret:a-authorization}"],
            &[("a-authorization", "s3cret")],
        );
        check_args_extract_secrets(
            &["postgres://u:one@h/db?token=two"],
            &["postgres://u:${secret:a-password}@h/db?token=${secret:a-token}"],
            &[("a-token", "two"), ("a-password", "one")],
        );
        check_args_extract_secrets(
            &["TOKEN=one", "token=two"],
            &["TOKEN=${secret:a-token}", "token=${secret:a-token-2}"],
            &[("a-token", "one"), ("a-token-2", "two")],
        );
    }
}
