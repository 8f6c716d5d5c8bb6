//! What a server answered, as people read it: text, one line for what is no text, and files where they are wanted.
//!
//! **Invariant:** what reaches a terminal is cleaned; what is asked for raw is untouched.

use std::path::Path;

use serde_json::value::RawValue;
use toolrack_mcp::{Content, ResourceBody, ResourceContents, ToolCallResult};
use toolrack_transport::clean_text;

use crate::error::Failure;
use crate::json_format;
use crate::save::Files;

/// The text of a result. If it has none, what it has for programs.
pub(crate) fn of_result(
    result: &ToolCallResult<'_>,
    files: &mut Files<'_>,
) -> Result<String, Failure> {
    let mut blocks = Vec::new();
    for block in &result.content {
        blocks.push(of_block(block, files)?);
    }
    Ok(match (blocks.is_empty(), &result.structured_content) {
        (true, Some(structured)) => of_structure(RawValue::get(structured)),
        _ => blocks.join("\n"),
    })
}

fn of_structure(json: &str) -> String {
    if json_format::is_sprawling(json) {
        let n_bytes = json.len();
        return format!(
            "[{n_bytes} bytes of JSON, nested too deep to be shown; `-o json` has them]"
        );
    }
    json_format::pretty(json)
}

/// One block.
pub(crate) fn of_block(block: &Content<'_>, files: &mut Files<'_>) -> Result<String, Failure> {
    if let Some(text) = block.as_text() {
        return Ok(clean_text(text).into_owned());
    }
    if let Content::Unknown(raw) = block
        && let Some(text) = mended_text(raw)
    {
        return Ok(text);
    }
    let saved = match block {
        Content::Image { data, mime_type, .. } | Content::Audio { data, mime_type, .. } => {
            files.take(data, mime_type)?
        }
        Content::Resource { resource, .. } => return of_resource(resource, files),
        _ => None,
    };
    let placeholder = clean_text(&block.placeholder().unwrap_or_default()).into_owned();
    Ok(with_place(placeholder, saved))
}

/// The text of a block that could not be read only because a character of it is half.
fn mended_text(raw: &RawValue) -> Option<String> {
    let mended = RawValue::from_string(json_format::mended(raw.get())?).ok()?;
    Content::parse(&mended).as_text().map(|it| clean_text(it).into_owned())
}

/// What a resource holds.
pub(crate) fn of_resource(
    resource: &ResourceContents<'_>,
    files: &mut Files<'_>,
) -> Result<String, Failure> {
    let media_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
    match &resource.body {
        ResourceBody::Text(text) => Ok(clean_text(text).into_owned()),
        ResourceBody::Blob(base64) => {
            let n_bytes = base64.trim_end_matches('=').len() * 3 / 4;
            let shown = format!("[resource: {}, {media_type}, {n_bytes} bytes]", resource.uri);
            let placeholder = clean_text(&shown).into_owned();
            Ok(with_place(placeholder, files.take(base64, media_type)?))
        }
    }
}

fn with_place(placeholder: String, saved: Option<&Path>) -> String {
    match saved {
        Some(path) => format!("{placeholder} saved as {}", path.display()),
        None => placeholder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, dir: Option<&Path>, expected: &str) {
        let result = ToolCallResult::parse(json.as_bytes()).unwrap();
        assert_eq!(of_result(&result, &mut Files::into(dir)).unwrap(), expected, "{json}");
    }

    const PICTURE: &str = r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#;

    #[test]
    fn a_result_is_text_and_placeholders() {
        check(r#"{"content":[{"type":"text","text":"a\u001b[1mb"}]}"#, None, "ab");
        let both = format!(r#"{{"content":[{PICTURE},{{"type":"text","text":"x"}}]}}"#);
        check(&both, None, "[image: image/png, 2 bytes]\nx");
        check(r#"{"content":[],"structuredContent":{"a":1}}"#, None, "{\n  \"a\": 1\n}");
        check(r#"{"content":[{"type":"text","text":"t"}],"structuredContent":{"a":1}}"#, None, "t");
        let blob = r#"{"uri":"x:\u202ey","mimeType":"image/gif","blob":"aGk="}"#;
        let embedded = format!(r#"{{"content":[{{"type":"resource","resource":{blob}}}]}}"#);
        check(&embedded, None, "[resource: x:y, image/gif, 2 bytes]");
        check("{}", None, "");
        let half = r#"{"content":[{"type":"text","text":"x\ud800y\u001b[31m"}]}"#;
        check(half, None, "x\u{fffd}y");
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        let deep = format!(r#"{{"content":[],"structuredContent":{deep}}}"#);
        let shown = "[600001 bytes of JSON, nested too deep to be shown; `-o json` has them]";
        check(&deep, None, shown);
    }

    #[test]
    fn files_are_saved_where_it_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result-1.png");
        let shown = format!("[image: image/png, 2 bytes] saved as {}", path.display());
        check(&format!(r#"{{"content":[{PICTURE}]}}"#), Some(dir.path()), &shown);
    }
}
