//! Files of a result, written into a directory of the user's choice.
//!
//! **Invariant:** no file that is there is overwritten, and no name comes from a server.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::failure::Failure;

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

/// Decodes base64 and writes it into a new file. Gives the path.
pub(crate) fn save(dir: &Path, base64: &str, media_type: &str) -> Result<PathBuf, Failure> {
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
        assert!(save(&dir, "%%", "image/png").is_err());
        assert!(save(Path::new("/proc/nowhere"), "aGk=", "image/png").is_err());
    }
}
