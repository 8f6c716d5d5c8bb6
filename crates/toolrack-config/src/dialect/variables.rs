//! References of other tools into ours. What a tool would not have filled in is escaped, so that we do not
//! either.

use std::collections::HashMap;

use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;
use crate::raw_server::Draft;
use crate::server::EnvValue;
use crate::table_reader::join;
use crate::template::escaped;

/// How a tool writes references.
#[derive(Debug, Clone, Copy)]
pub(super) enum Manner<'i> {
    /// Not at all.
    Plain,
    /// `${VAR}` and `${VAR:-default}`.
    Shell,
    /// The same, `${env:VAR}`, `${input:id}` and variables of the editor. The inputs come with their
    /// defaults.
    Editor(&'i HashMap<String, Option<String>>),
    /// `{env:VAR}` and `{file:path}`.
    Braces,
}

/// Variables that only an editor knows.
const EDITOR: [&str; 6] =
    ["workspaceFolder", "workspaceFolderBasename", "pathSeparator", "cwd", "fileDirname", "file"];

/// Translates every text of a draft.
pub(super) fn draft(notes: &mut Notes<'_>, draft: &mut Draft, manner: Manner<'_>) {
    let (path, places, at) = (draft.path.clone(), draft.places.clone(), draft.at);
    let mut each = |field: String, text: &mut String| {
        for variable in editor_variables(text, manner) {
            let place = places.get(&field).copied().unwrap_or(at);
            let message =
                format!("`${{{variable}}}` is known to an editor only; write the path it means");
            notes.warn(FaultKind::Unsupported, place, &format!("{path}.{field}"), &message);
        }
        *text = self::text(text, manner);
    };
    draft.command.iter_mut().for_each(|it| each("command".to_owned(), it));
    draft.args.iter_mut().enumerate().for_each(|(n, it)| each(format!("args[{n}]"), it));
    draft.cwd.iter_mut().for_each(|it| each("cwd".to_owned(), it));
    draft.url.iter_mut().for_each(|it| each("url".to_owned(), it));
    draft.headers.iter_mut().for_each(|(name, it)| each(join("headers", name), it));
    for (name, value) in &mut draft.env {
        if let EnvValue::Text(text) = value {
            each(join("env", name), text);
        }
    }
}

fn text(text: &str, manner: Manner<'_>) -> String {
    match manner {
        Manner::Plain => escaped(text),
        Manner::Shell | Manner::Editor(_) => dollars(text, manner),
        Manner::Braces => braces(text),
    }
}

fn dollars(text: &str, manner: Manner<'_>) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("${") {
        translated.push_str(before);
        let Some((inner, tail)) = tail.split_once('}') else {
            translated.push_str(&escaped("${"));
            rest = tail;
            continue;
        };
        translated.push_str(&reference(inner, manner));
        rest = tail;
    }
    translated.push_str(rest);
    translated
}

fn reference(inner: &str, manner: Manner<'_>) -> String {
    let name = inner.split_once(":-").map_or(inner, |it| it.0);
    let word = !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    let inputs = match manner {
        Manner::Editor(inputs) => Some(inputs),
        _ => None,
    };
    match (inputs, inner.split_once(':')) {
        (Some(_), Some(("env", _))) => format!("${{{inner}}}"),
        (Some(inputs), Some(("input", id))) => match inputs.get(id) {
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
    while let Some(at) = ["{env:", "{file:"].iter().filter_map(|it| rest.find(it)).min() {
        let (before, tail) = rest.split_at(at);
        let Some((inner, tail)) = tail.strip_prefix('{').and_then(|it| it.split_once('}')) else {
            break;
        };
        translated.push_str(&escaped(before));
        translated.extend(["${", inner, "}"]);
        rest = tail;
    }
    translated.push_str(&escaped(rest));
    translated
}

fn editor_variables<'t>(text: &'t str, manner: Manner<'_>) -> Vec<&'t str> {
    if !matches!(manner, Manner::Editor(_)) {
        return Vec::new();
    }
    let inner = |it: &'t str| it.split_once('}').map(|it| it.0);
    text.split("${").skip(1).filter_map(inner).filter(|it| EDITOR.contains(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(manner: Manner<'_>, theirs: &str, ours: &str) {
        assert_eq!(text(theirs, manner), ours, "{theirs}");
    }

    #[test]
    fn references_keep_their_meaning() {
        check(Manner::Plain, "a ${B}", "a $${B}");
        check(Manner::Shell, "Bearer ${B:-c}", "Bearer ${B:-c}");
        check(Manner::Shell, "${env:B} ${v%.*} ${open", "$${env:B} $${v%.*} $${open");
        check(
            Manner::Braces,
            "x {env:A}/{file:~/k} ${B} {env:",
            "x ${env:A}/${file:~/k} $${B} {env:",
        );
        let inputs = HashMap::from([
            ("key".to_owned(), None),
            ("host".to_owned(), Some("localhost".to_owned())),
        ]);
        let editor = Manner::Editor(&inputs);
        check(editor, "${env:A} ${A}", "${env:A} ${A}");
        check(editor, "${input:key}@${input:host}", "${secret:key}@${secret:host:-localhost}");
        check(editor, "${userHome}/x", "${HOME}/x");
        check(editor, "${config:a.b}", "$${config:a.b}");
        assert_eq!(editor_variables("${workspaceFolder}/a ${A}", editor), ["workspaceFolder"]);
    }
}
