//! Config file store: reads the file, edits it under a lock, and replaces it atomically.
//!
//! **Invariant:** the file is always the old version or the new one; a file that does not parse is never overwritten;
//! an edit that a person makes during a save is not lost.
//! **Invariant:** the config file is written here and nowhere else.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs, io};

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use toolrack_config::{ConfigFile, Diagnostic, DiagnosticKind, Dialect, Position};
use toolrack_platform::{Directory, FileMode, ReplaceOutcome, Replacement, read_open_file};

use crate::document::{self, Document};
use crate::error::{ErrorCode, ErrorDetail, ServiceError, io_error};

/// How long to wait for another process that holds the lock. One save takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an edit starts over because a person saves the file at the same moment.
const MAX_ATTEMPTS: usize = 20;
/// First lines of a new file.
const HEADER: &str =
    "# MCP servers of toolrack. Edit it as you like: comments and order are kept.\n\n";

/// The config file at one path.
///
/// Its methods block on the disk, and up to ten seconds on another process that saves.
#[derive(Debug, Clone)]
pub struct ConfigStore {
    path: PathBuf,
    lock_timeout: Duration,
}

/// A config file as read from disk. The default is an empty file.
#[derive(Clone, Default)]
pub struct StoredConfig {
    /// The text of the file; empty if there is no file.
    pub text: String,
    /// Identifies this version of the file.
    pub etag: ETag,
    /// The parsed config.
    pub file: ConfigFile,
    /// Warnings of the parser.
    pub warnings: Vec<Diagnostic>,
}

/// Why a config file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// The file belongs to another tool.
    #[error("the file has the format of another tool")]
    Foreign(Dialect),
    /// The errors of the file, and its warnings, in file order.
    #[error("the file has errors")]
    Invalid(Vec<Diagnostic>),
}

impl LoadError {
    /// The error as the service reports it. The program that shows it knows how servers are imported.
    pub(crate) fn into_service_error(self, path: &Path) -> ServiceError {
        let name = path.display();
        match self {
            Self::Unreadable(_) if path.file_name().is_none() => {
                let message = format!("`{name}` is not a file path");
                ServiceError::new(ErrorCode::ValidationError, message)
            }
            Self::Unreadable(error) => io_error("read", path, error),
            Self::Foreign(_) => {
                let message = format!("`{name}` is a config file of another tool");
                ErrorDetail::new(ErrorCode::ValidationError, message)
                    .with_hint("import its servers into a config file of toolrack")
                    .into()
            }
            Self::Invalid(diagnostics) => document::config_error(&diagnostics),
        }
    }
}

impl StoredConfig {
    /// Parses the text of the file at `path`.
    pub(crate) fn parse(path: &Path, text: String) -> Result<Self, LoadError> {
        let parsed = toolrack_config::read(&path.display().to_string(), &text);
        if parsed.value.dialect != Dialect::Toolrack {
            return Err(LoadError::Foreign(parsed.value.dialect));
        }
        let (file, warnings) = parsed.accept().map_err(LoadError::Invalid)?;
        Ok(Self { etag: ETag::from_text(&text), text, file, warnings })
    }

    /// Parses the text as an editable document.
    ///
    /// # Errors
    ///
    /// None for a value that a [`ConfigStore`] returned.
    pub fn document(&self) -> Result<Document, ServiceError> {
        Document::parse("", &self.text)
    }
}

impl ConfigStore {
    /// Size limit. A larger file is not a config file.
    pub const MAX_BYTES: usize = 4 << 20;

    /// The file at `path`, which need not exist. A symbolic link is followed and stays a link.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), lock_timeout: LOCK_TIMEOUT }
    }

    /// Sets how long to wait for other processes; the default is ten seconds.
    #[must_use]
    pub fn lock_timeout(self, lock_timeout: Duration) -> Self {
        Self { lock_timeout, ..self }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and parses the file.
    ///
    /// # Errors
    ///
    /// See [`LoadError`]. A missing file is [`Unreadable`](LoadError::Unreadable) with [`io::ErrorKind::NotFound`].
    pub fn load(&self) -> Result<StoredConfig, LoadError> {
        let bytes = self.read_bytes()?.ok_or_else(|| io::Error::from(Errno::NOENT))?;
        StoredConfig::parse(&self.path, self.decode(bytes)?)
    }

    /// Reads and parses the file. A missing file is an empty config.
    ///
    /// # Errors
    ///
    /// Every diagnostic of the file, each with line and column, or the reason why it cannot be read.
    pub fn read(&self) -> Result<StoredConfig, ServiceError> {
        match self.load() {
            Err(LoadError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(StoredConfig::default())
            }
            loaded => loaded.map_err(|error| error.into_service_error(&self.path)),
        }
    }

    /// Reads the text of the file, valid or not, for an editor.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too large or is not UTF-8.
    pub fn read_text(&self) -> Result<(String, ETag), ServiceError> {
        let bytes = self.read_bytes().map_err(LoadError::from);
        let decoded = bytes.and_then(|bytes| self.decode(bytes.unwrap_or_default()));
        let text = decoded.map_err(|error| error.into_service_error(&self.path))?;
        let etag = ETag::from_text(&text);
        Ok((text, etag))
    }

    /// The content of the file; `None` if there is no file.
    fn read_bytes(&self) -> io::Result<Option<Vec<u8>>> {
        let target = Target::resolve(&self.path)?;
        let Some(dir) = Directory::open(&target.dir)? else { return Ok(None) };
        dir.open_file(&target.name)?.map(|file| read_open_file(&file, Self::MAX_BYTES)).transpose()
    }

    /// Edits the file. Returns the result of `change` and the new state of the file.
    ///
    /// `change` gets the current document. If a person saves the file in the meantime, it is called again with their
    /// version. Nothing is written if `change` fails or changes nothing.
    ///
    /// # Errors
    ///
    /// `CONFLICT` if the file is not the `expected` version; every diagnostic if the file is invalid, or would be; the
    /// reason if it cannot be saved. In each case the file is unchanged.
    pub fn edit<T>(
        &self,
        expected: Option<ETag>,
        mut change: impl FnMut(&mut Document) -> Result<T, ServiceError>,
    ) -> Result<(T, StoredConfig), ServiceError> {
        self.save(expected, |current| {
            let current = current.map_or_else(|| HEADER.to_owned(), str::to_owned);
            let mut document = Document::parse(&self.name(), &current)?;
            let value = change(&mut document)?;
            let text = document.text();
            // Do not create a file for the header alone.
            Ok((value, if text == HEADER { String::new() } else { text }))
        })
    }

    /// Replaces the whole text, as edited by a person.
    ///
    /// An invalid file is replaced only if it is the `expected` version: then the person who fixes it has seen it.
    ///
    /// # Errors
    ///
    /// As for [`edit`](Self::edit); diagnostics refer to `text`.
    pub fn replace_text(
        &self,
        expected: Option<ETag>,
        text: &str,
    ) -> Result<StoredConfig, ServiceError> {
        // Reject an invalid text before taking the lock.
        self.parse_stored(text.to_owned())?;
        let replaced = self.save(expected, |current| {
            // Without a version the caller may never have seen the file, and an invalid file holds
            // work of a person.
            if let (None, Some(current)) = (expected, current) {
                self.parse_stored(current.to_owned())?;
            }
            Ok(((), text.to_owned()))
        });
        replaced.map(|((), stored)| stored)
    }

    fn save<T>(
        &self,
        expected: Option<ETag>,
        mut next: impl FnMut(Option<&str>) -> Result<(T, String), ServiceError>,
    ) -> Result<(T, StoredConfig), ServiceError> {
        let save_error = |error| io_error("save", &self.path, error);
        let load_error = |error: LoadError| error.into_service_error(&self.path);
        let target = Target::resolve(&self.path).map_err(|error| load_error(error.into()))?;
        let dir = Directory::create(&target.dir).map_err(save_error)?;
        // Before the snapshot: between the two, another Toolrack process could save a version that
        // this edit does not contain.
        let _lock = dir.lock(&target.lock, self.lock_timeout).map_err(save_error)?;
        // Left over from a killed save. The lock is held, so no running save uses the name.
        dir.remove_if_exists(&target.temp_name).map_err(save_error)?;
        // Optimistic: `change` runs on a snapshot, and `replace` notices if the file has changed since. The lock keeps
        // other Toolrack processes out, but not editors.
        for _attempt in 0..MAX_ATTEMPTS {
            let snapshot = dir.snapshot(&target.name, Self::MAX_BYTES);
            let snapshot = snapshot.map_err(|error| io_error("read", &self.path, error))?;
            let text = snapshot.bytes().map(|bytes| self.decode(bytes.to_vec())).transpose();
            let text = text.map_err(load_error)?;
            let etag = ETag::from_text(text.as_deref().unwrap_or_default());
            if expected.is_some_and(|expected| expected != etag) {
                return Err(self.conflict());
            }
            let (value, new) = next(text.as_deref())?;
            // Parsed before it is written: an edit that would make the file invalid never
            // reaches the disk.
            let stored = self.parse_stored(new)?;
            // Unchanged: do not touch the file, not even its modification time.
            if text.as_ref() == Some(&stored.text) || (text.is_none() && stored.text.is_empty()) {
                return Ok((value, stored));
            }
            let replacement = Replacement {
                name: &target.name,
                temp_name: &target.temp_name,
                bytes: stored.text.as_bytes(),
                // The file belongs to the user, who may have made it readable for a group.
                mode: FileMode::Preserve,
            };
            if dir.replace(&snapshot, replacement).map_err(save_error)? == ReplaceOutcome::Replaced
            {
                return Ok((value, stored));
            }
        }
        Err(self.conflict())
    }

    fn decode(&self, bytes: Vec<u8>) -> Result<String, LoadError> {
        String::from_utf8(bytes).map_err(|error| {
            // Line and column by hand, because no TOML parser accepts these bytes.
            let (valid, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let valid = String::from_utf8_lossy(valid);
            let line = valid.matches('\n').count() + 1;
            let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let at = Some(Position { line, column });
            let words = (String::new(), "not valid UTF-8".to_owned());
            let diagnostic =
                Diagnostic::error(DiagnosticKind::Syntax, self.name().into(), at, words);
            LoadError::Invalid(vec![diagnostic])
        })
    }

    fn parse_stored(&self, text: String) -> Result<StoredConfig, ServiceError> {
        if text.len() > Self::MAX_BYTES {
            let message = format!("`{}` would be larger than 4 MiB", self.name());
            return Err(ServiceError::new(ErrorCode::ValidationError, message));
        }
        let (file, warnings) = document::read(&self.name(), &text)?;
        Ok(StoredConfig { etag: ETag::from_text(&text), text, file, warnings })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn conflict(&self) -> ServiceError {
        let message = format!("`{}` was changed by another program", self.name());
        ErrorDetail::new(ErrorCode::Conflict, message)
            .with_hint("check its current content and try again")
            .into()
    }
}

/// Omits the text, which may contain secrets.
impl fmt::Debug for StoredConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredConfig")
            .field("etag", &self.etag)
            .field("file", &self.file)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// Version of a config file: a hash of its content, so that an edit by hand changes it too. The default is that of an
/// empty file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ETag(u128);

impl Default for ETag {
    fn default() -> Self {
        Self::from_text("")
    }
}

impl ETag {
    /// The tag of a file with this text.
    pub fn from_text(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self(digest.iter().take(16).fold(0, |tag, byte| (tag << 8) | u128::from(*byte)))
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The text is not an [`ETag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an etag: expected 32 hexadecimal digits")]
pub struct InvalidETag;

impl FromStr for ETag {
    type Err = InvalidETag;

    fn from_str(text: &str) -> Result<Self, InvalidETag> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidETag);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_malformed| InvalidETag)
    }
}

/// As many symbolic links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The file behind a path, after following links: the link stays one, and every process locks the same file.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    dir: PathBuf,
    name: OsString,
    /// Name of the lock file beside it.
    lock: OsString,
    /// Name of the temporary file beside it.
    temp_name: OsString,
}

impl Target {
    /// Follows symbolic links, up to [`MAX_LINKS`].
    fn resolve(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        let mut n_links = 0;
        // What is not a link, or nothing at all, is the path of the file.
        while let Ok(to) = fs::read_link(&path) {
            n_links += 1;
            if n_links == MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            path = path.parent().map_or_else(|| to.clone(), |dir| dir.join(&to));
        }
        let Some(name) = path.file_name() else { return Err(Errno::ISDIR.into()) };
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let hidden = |suffix: &str| {
            [OsStr::new("."), name, OsStr::new(suffix)].into_iter().collect::<OsString>()
        };
        Ok(Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            lock: hidden(".lock"),
            temp_name: hidden(".tmp"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etag_round_trips_through_text() {
        let etag = ETag::from_text("a");
        assert_eq!(etag.to_string().parse(), Ok(etag));
        assert_ne!(etag, ETag::from_text("b"));
        for text in ["", "a", &"g".repeat(32), &"+".repeat(32), &"a".repeat(33)] {
            assert_eq!(text.parse::<ETag>(), Err(InvalidETag), "{text:?}");
        }
    }
}
