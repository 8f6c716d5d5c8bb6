//! Text files of the repository, read once, so that every rule is a pure function.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Names of build output, downloads and Git data.
const SKIPPED: [&str; 5] = ["target", "node_modules", "venv", ".git", "__pycache__"];

/// One text file. `path` is relative to the root, with forward slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Writes a file of the repository, which Git protects against a half-written state.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let written = fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| path.display().to_string())
}

/// File extension of a path.
pub(crate) fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Every text file below `root`, sorted by path. A file that is not UTF-8 is not text.
pub(crate) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            // In a linked worktree `.git` is a file.
            if is_skipped(&path) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                sources.extend(read_text(root, &path)?);
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

fn is_skipped(path: &Path) -> bool {
    path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped))
}

fn read_text(root: &Path, path: &Path) -> Result<Option<Source>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        // Removed since the folder was listed, as editors and tests do.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let shown = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
    Ok(String::from_utf8(bytes).ok().map(|text| Source { path: shown, text }))
}
