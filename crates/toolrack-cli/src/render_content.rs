//! Renders tool results and resources as text, and saves binary contents to files.
//!
//! **Invariant:** text for a terminal is sanitized; `-o raw` is unchanged. Existing files are never
//! overwritten, and servers do not choose file names.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::json;
use serde_json::value::RawValue;
use toolrack_mcp::{Content, ResourceBody, ResourceContents, ToolCallResult};
use toolrack_transport::sanitize_text;

use crate::error::CliError;
use crate::json_format;
use crate::printer::Printer;

/// The text of a result, or else its structured content.
pub(crate) fn render_result(
    result: &ToolCallResult<'_>,
    files: &mut Files<'_>,
) -> Result<String, CliError> {
    let blocks = result.content.iter().map(|block| render_block(block, files));
    let blocks = blocks.collect::<Result<Vec<_>, CliError>>()?;
    Ok(match (blocks.is_empty(), &result.structured_content) {
        (true, Some(structured)) => json_format::indented(structured.get()).unwrap_or_else(|| {
            let n_bytes = structured.get().len();
            format!("[{n_bytes} bytes of JSON, nested too deep to display; use `-o json`]")
        }),
        _ => blocks.join("\n"),
    })
}

/// A content block as text.
pub(crate) fn render_block(block: &Content<'_>, files: &mut Files<'_>) -> Result<String, CliError> {
    if let Some(text) = block.as_text() {
        return Ok(sanitize_text(text).into_owned());
    }
    if let Content::Unknown(raw) = block
        && let Some(text) = repaired_text(raw)
    {
        return Ok(text);
    }
    let saved = match block {
        Content::Image { data, mime_type, .. } | Content::Audio { data, mime_type, .. } => {
            files.save(data, mime_type)?
        }
        Content::Resource { resource, .. } => return render_resource(resource, files),
        _ => None,
    };
    let placeholder = sanitize_text(&block.placeholder().unwrap_or_default()).into_owned();
    Ok(with_saved_path(placeholder, saved))
}

/// The text of a block that failed to parse only because of a lone surrogate.
fn repaired_text(raw: &RawValue) -> Option<String> {
    let repaired = RawValue::from_string(json_format::repair_surrogates(raw.get())?).ok()?;
    Content::parse(&repaired).as_text().map(|text| sanitize_text(text).into_owned())
}

/// Contents of a resource as text.
pub(crate) fn render_resource(
    resource: &ResourceContents<'_>,
    files: &mut Files<'_>,
) -> Result<String, CliError> {
    let media_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
    match &resource.body {
        ResourceBody::Text(text) => Ok(sanitize_text(text).into_owned()),
        ResourceBody::Blob(base64) => {
            let n_bytes = base64.trim_end_matches('=').len() * 3 / 4;
            let text = format!("[resource: {}, {media_type}, {n_bytes} bytes]", resource.uri);
            let placeholder = sanitize_text(&text).into_owned();
            Ok(with_saved_path(placeholder, files.save(base64, media_type)?))
        }
    }
}

fn with_saved_path(placeholder: String, saved: Option<&Path>) -> String {
    match saved {
        Some(path) => format!("{placeholder} saved to {}", path.display()),
        None => placeholder,
    }
}

/// Maximum number in a file name.
const MAX_FILES: usize = 10_000;

/// File extension of a media type.
const EXTENSIONS: &[(&str, &str)] = &[
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("audio/wav", "wav"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "ogg"),
    ("application/pdf", "pdf"),
    ("application/json", "json"),
    ("application/zip", "zip"),
    ("text/plain", "txt"),
    ("text/html", "html"),
    ("text/csv", "csv"),
    ("text/markdown", "md"),
];

/// Saves the files of a result, if a directory is given.
#[derive(Debug)]
pub(crate) struct Files<'d> {
    dir: Option<&'d Path>,
    saved: Vec<PathBuf>,
    n_unsaved: usize,
}

impl<'d> Files<'d> {
    /// Saves to `dir`, or counts the files if there is none.
    pub(crate) fn new(dir: Option<&'d Path>) -> Self {
        Self { dir, saved: Vec::new(), n_unsaved: 0 }
    }

    /// Saves a file, and returns its path.
    pub(crate) fn save(
        &mut self,
        base64: &str,
        media_type: &str,
    ) -> Result<Option<&Path>, CliError> {
        let Some(dir) = self.dir else {
            self.n_unsaved += 1;
            return Ok(None);
        };
        self.saved.push(save_base64(dir, base64, media_type)?);
        Ok(self.saved.last().map(PathBuf::as_path))
    }

    /// Adds the saved paths to a JSON document.
    pub(crate) fn with_saved_paths(&self, json: &str) -> String {
        if self.dir.is_none() {
            return json.to_owned();
        }
        let paths: Vec<_> = self.saved.iter().map(|path| path.to_string_lossy()).collect();
        json_format::with_member(json, "saved", &json!(paths).to_string())
    }

    /// Notes the saved paths, for raw output.
    pub(crate) fn note_saved(&self, printer: &Printer) {
        for path in &self.saved {
            printer.note(format_args!("note: saved to {}", path.display()));
        }
    }

    /// Notes how to save binary contents.
    pub(crate) fn note_unsaved(&self, printer: &Printer) {
        if self.n_unsaved > 0 {
            printer.note("note: binary contents are not shown; use `--save DIR` to save them");
        }
    }
}

/// Decodes base64 and writes it to a new file. Returns the path.
fn save_base64(dir: &Path, base64: &str, media_type: &str) -> Result<PathBuf, CliError> {
    // Some encoders break lines after 76 characters, and some leave out the padding.
    let text: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(&text).or_else(|_padding| STANDARD_NO_PAD.decode(&text));
    let bytes = decoded.map_err(|error| {
        let message = format!("cannot decode a part of the result: {error}");
        CliError::usage(message, "see the whole result with `-o raw`")
    })?;
    let write = || {
        fs::create_dir_all(dir)?;
        let extension = file_extension(media_type);
        let (mut file, path) = create_numbered(dir, "result", extension, 0o666)?;
        file.write_all(&bytes)?;
        Ok(path)
    };
    write().map_err(|error: io::Error| {
        let message = format!("cannot write to {}: {error}", dir.display());
        CliError::usage(message, "use a directory you can write to").with_field("--save")
    })
}

/// Creates a file with the first free number in its name, such as `result-1.png`. Fails on an
/// existing file and on a link, so nothing is overwritten.
pub(crate) fn create_numbered(
    dir: &Path,
    stem: &str,
    extension: &str,
    mode: u32,
) -> io::Result<(File, PathBuf)> {
    for number in 1..=MAX_FILES {
        let path = dir.join(format!("{stem}-{number}.{extension}"));
        match File::options().write(true).create_new(true).mode(mode).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("too many files `{stem}-1.{extension}` and so on")))
}

fn file_extension(media_type: &str) -> &'static str {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    EXTENSIONS
        .iter()
        .find(|(name, _)| *name == essence)
        .map_or("bin", |(_, file_extension)| file_extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, dir: Option<&Path>, expected: &str) {
        let result = ToolCallResult::parse(json.as_bytes()).unwrap();
        assert_eq!(render_result(&result, &mut Files::new(dir)).unwrap(), expected, "{json}");
    }

    const PICTURE: &str = r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#;

    #[test]
    fn results_are_text_and_placeholders() {
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
        let text = "[600001 bytes of JSON, nested too deep to display; use `-o json`]";
        check(&deep, None, text);
    }

    #[test]
    fn files_are_saved_to_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result-1.png");
        let text = format!("[image: image/png, 2 bytes] saved to {}", path.display());
        check(&format!(r#"{{"content":[{PICTURE}]}}"#), Some(dir.path()), &text);
    }

    #[test]
    fn saved_files_never_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("below");
        for (base64, media_type, name) in [
            ("aGk=", "image/png", "result-1.png"),
            ("aG\nk", "image/png", "result-2.png"),
            ("aGk=", "text/plain; charset=utf-8", "result-1.txt"),
            ("aGk=", "../../x", "result-1.bin"),
        ] {
            let path = save_base64(&dir, base64, media_type).unwrap();
            assert_eq!(path, dir.join(name));
            assert_eq!(fs::read(path).unwrap(), b"hi");
        }
        let mut files = Files::new(Some(&dir));
        files.save("aGk=", "image/gif").unwrap();
        let json = files.with_saved_paths(r#"{"a":1}"#);
        let expected = format!(r#"{{"a":1,"saved":["{}"]}}"#, dir.join("result-1.gif").display());
        assert_eq!(json, expected);
        assert!(save_base64(&dir, "%%", "image/png").is_err());
        assert!(save_base64(Path::new("/proc/nowhere"), "aGk=", "image/png").is_err());
    }
}
