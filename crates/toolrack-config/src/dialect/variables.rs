//! Variable references of other tools, translated to ours. Text that the tool does not expand is escaped.

use std::collections::HashMap;

use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;
use crate::interpolate::escaped;
use crate::raw_server::RawServer;
use crate::server::EnvValue;
use crate::table_reader::join;

/// Reference syntax of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReferenceSyntax<'i> {
    /// None.
    Plain,
    /// `${VAR}` and `${VAR:-default}`.
    Shell,
    /// The same, plus `${env:VAR}`, `${input:id}` and editor variables. Inputs come with their
    /// defaults.
    Editor(&'i HashMap<String, Option<String>>),
    /// `{env:VAR}` and `{file:path}`.
    Braces,
}

/// Variables that only an editor can expand.
const EDITOR: [&str; 6] =
    ["workspaceFolder", "workspaceFolderBasename", "pathSeparator", "cwd", "fileDirname", "file"];

/// Translates every text of a server.
pub(super) fn server(
    diagnostics: &mut Diagnostics<'_>,
    server: &mut RawServer,
    syntax: ReferenceSyntax<'_>,
) {
    let (path, locations, at) = (server.path.clone(), server.locations.clone(), server.at);
    let mut each = |field: String, text: &mut String| {
        for variable in editor_variables(text, syntax) {
            let place = locations.get(&field).copied().unwrap_or(at);
            let message =
                format!("`${{{variable}}}` is an editor variable; write the path instead");
            diagnostics.warn(
                DiagnosticKind::Unsupported,
                place,
                &format!("{path}.{field}"),
                &message,
            );
        }
        *text = self::text(text, syntax);
    };
    server.command.iter_mut().for_each(|item| each("command".to_owned(), item));
    server.args.iter_mut().enumerate().for_each(|(n, arg)| each(format!("args[{n}]"), arg));
    server.cwd.iter_mut().for_each(|item| each("cwd".to_owned(), item));
    server.url.iter_mut().for_each(|item| each("url".to_owned(), item));
    server.headers.iter_mut().for_each(|(name, header)| each(join("headers", name), header));
    for (name, value) in &mut server.env {
        if let EnvValue::Text(text) = value {
            each(join("env", name), text);
        }
    }
}

fn text(text: &str, syntax: ReferenceSyntax<'_>) -> String {
    match syntax {
        ReferenceSyntax::Plain => escaped(text),
        ReferenceSyntax::Shell | ReferenceSyntax::Editor(_) => dollars(text, syntax),
        ReferenceSyntax::Braces => braces(text),
    }
}

fn dollars(text: &str, syntax: ReferenceSyntax<'_>) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("${") {
        translated.push_str(before);
        let Some((inner, tail)) = tail.split_once('}') else {
            // Without a closing brace it is no reference.
            translated.push_str(&escaped("${"));
            rest = tail;
            continue;
        };
        translated.push_str(&reference(inner, syntax));
        rest = tail;
    }
    translated.push_str(rest);
    translated
}

fn reference(inner: &str, syntax: ReferenceSyntax<'_>) -> String {
    let name = inner.split_once(":-").map_or(inner, |parts| parts.0);
    let word = !name.is_empty()
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    let inputs = match syntax {
        ReferenceSyntax::Editor(inputs) => Some(inputs),
        _ => None,
    };
    match (inputs, inner.split_once(':')) {
        (Some(_), Some(("env", _))) => format!("${{{inner}}}"),
        (Some(inputs), Some(("input", id))) => match inputs.get(id) {
            // A brace would end the reference.
            Some(Some(default)) => format!("${{secret:{id}:-{}}}", default.replace('}', "")),
            _ => format!("${{secret:{id}}}"),
        },
        (Some(_), None) if inner == "userHome" => "${HOME}".to_owned(),
        _ if word => format!("${{{inner}}}"),
        _ => escaped(&format!("${{{inner}}}")),
    }
}

fn braces(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["{env:", "{file:"].iter().filter_map(|value| rest.find(value)).min() {
        let (before, tail) = rest.split_at(at);
        let Some((inner, tail)) = tail.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            break;
        };
        translated.push_str(&escaped(before));
        translated.extend(["${", inner, "}"]);
        rest = tail;
    }
    translated.push_str(&escaped(rest));
    translated
}

fn editor_variables<'t>(text: &'t str, syntax: ReferenceSyntax<'_>) -> Vec<&'t str> {
    if !matches!(syntax, ReferenceSyntax::Editor(_)) {
        return Vec::new();
    }
    let inner = |value: &'t str| value.split_once('}').map(|parts| parts.0);
    text.split("${").skip(1).filter_map(inner).filter(|part| EDITOR.contains(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(syntax: ReferenceSyntax<'_>, theirs: &str, ours: &str) {
        assert_eq!(text(theirs, syntax), ours, "{theirs}");
    }

    #[test]
    fn references_keep_their_meaning() {
        check(ReferenceSyntax::Plain, "a ${B}", "a $${B}");
        check(ReferenceSyntax::Shell, "Bearer ${B:-c}", "Bearer ${B:-c}");
        check(ReferenceSyntax::Shell, "${env:B} ${v%.*} ${open", "$${env:B} $${v%.*} $${open");
        check(
            ReferenceSyntax::Braces,
            "x {env:A}/{file:~/k} ${B} {env:",
            "x ${env:A}/${file:~/k} $${B} {env:",
        );
        let inputs = HashMap::from([
            ("key".to_owned(), None),
            ("host".to_owned(), Some("localhost".to_owned())),
        ]);
        let editor = ReferenceSyntax::Editor(&inputs);
        check(editor, "${env:A} ${A}", "${env:A} ${A}");
        check(editor, "${input:key}@${input:host}", "${secret:key}@${secret:host:-localhost}");
        check(editor, "${userHome}/x", "${HOME}/x");
        check(editor, "${config:a.b}", "$${config:a.b}");
        assert_eq!(editor_variables("${workspaceFolder}/a ${A}", editor), ["workspaceFolder"]);
    }
}
