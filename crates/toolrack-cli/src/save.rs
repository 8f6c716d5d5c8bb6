//! Files of a result, written into a directory of the user's choice.
//!
//! **Invariant:** no file that is there is overwritten, and no name comes from a server.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::json;

use crate::error::Failure;
use crate::json_format;
use crate::printer::Printer;

/// So many numbers are tried for a name.
const MOST: usize = 10_000;

/// The end of a file name for a media type.
const ENDINGS: &[(&str, &str)] = &[
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

/// Where the files of a result go, and what became of them.
#[derive(Debug)]
pub(crate) struct Files<'d> {
    dir: Option<&'d Path>,
    saved: Vec<PathBuf>,
    n_left: usize,
}

impl<'d> Files<'d> {
    /// Files go into this directory, or nowhere.
    pub(crate) fn into(dir: Option<&'d Path>) -> Self {
        Self { dir, saved: Vec::new(), n_left: 0 }
    }

    /// Writes a file, if that is wanted. Gives the path.
    pub(crate) fn take(
        &mut self,
        base64: &str,
        media_type: &str,
    ) -> Result<Option<&Path>, Failure> {
        let Some(dir) = self.dir else {
            self.n_left += 1;
            return Ok(None);
        };
        self.saved.push(save(dir, base64, media_type)?);
        Ok(self.saved.last().map(PathBuf::as_path))
    }

    /// A document for programs, with where its files are if they were wanted.
    pub(crate) fn beside(&self, json: &str) -> String {
        if self.dir.is_none() {
            return json.to_owned();
        }
        let paths: Vec<_> = self.saved.iter().map(|it| it.to_string_lossy()).collect();
        json_format::with_member(json, "saved", &json!(paths).to_string())
    }

    /// Says where files are, for whoever gets the result untouched.
    pub(crate) fn tell(&self, printer: &Printer) {
        for path in &self.saved {
            printer.note(format_args!("note: saved as {}", path.display()));
        }
    }

    /// Says how to get what is no text.
    pub(crate) fn tell_left(&self, printer: &Printer) {
        if self.n_left > 0 {
            printer.note("note: what is no text is only named; `--save DIR` writes it into files");
        }
    }
}

/// Decodes base64 and writes it into a new file. Gives the path.
fn save(dir: &Path, base64: &str, media_type: &str) -> Result<PathBuf, Failure> {
    let text: String = base64.chars().filter(|it| !it.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(&text).or_else(|_padding| STANDARD_NO_PAD.decode(&text));
    let bytes = decoded.map_err(|error| {
        let message = format!("a part of the result cannot be decoded: {error}");
        Failure::usage(message, "look at the whole result with `-o raw`")
    })?;
    write(dir, &bytes, ending(media_type)).map_err(|error| {
        let message = format!("nothing can be written into {}: {error}", dir.display());
        Failure::usage(message, "name a directory that you may write to").at("--save")
    })
}

fn write(dir: &Path, bytes: &[u8], ending: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    for number in 1..=MOST {
        let path = dir.join(format!("result-{number}.{ending}"));
        match File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(bytes)?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("there are too many results in it"))
}

fn ending(media_type: &str) -> &'static str {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    ENDINGS.iter().find(|(name, _)| *name == essence).map_or("bin", |(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_new_and_named_by_us() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("below");
        for (base64, media_type, name) in [
            ("aGk=", "image/png", "result-1.png"),
            ("aG\nk", "image/png", "result-2.png"),
            ("aGk=", "text/plain; charset=utf-8", "result-1.txt"),
            ("aGk=", "../../x", "result-1.bin"),
        ] {
            let path = save(&dir, base64, media_type).unwrap();
            assert_eq!(path, dir.join(name));
            assert_eq!(fs::read(path).unwrap(), b"hi");
        }
        let mut files = Files::into(Some(&dir));
        files.take("aGk=", "image/gif").unwrap();
        let told = files.beside(r#"{"a":1}"#);
        let expected = format!(r#"{{"a":1,"saved":["{}"]}}"#, dir.join("result-1.gif").display());
        assert_eq!(told, expected);
        assert!(save(&dir, "%%", "image/png").is_err());
        assert!(save(Path::new("/proc/nowhere"), "aGk=", "image/png").is_err());
    }
}
