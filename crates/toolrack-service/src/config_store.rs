//! The config file on disk: read whole, changed under a lock, replaced in one step.
//!
//! **Invariant:** the file is always an old one or a new one, never something between; a file that does not parse
//! is not overwritten; what a person changes while we write is not lost.
//! **Invariant:** only this module and what is below it writes files of the service.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use sha2::{Digest as _, Sha256};
use toolrack_config::{ConfigFile, Fault};

use crate::atomic_file::{Folder, Published, Readers, Replacement, read_all, trouble};
use crate::document::{self, Document};
use crate::error::{ErrorCode, ServiceError, ServiceFault};

/// A larger file is not a config file.
const LARGEST_BYTES: usize = 4 << 20;
/// How long another process may hold the lock. It does one save, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to start over because a person saves at the same moment.
const N_ATTEMPTS: usize = 20;
/// What a new file begins with.
const HEADER: &str =
    "# MCP servers of toolrack. Edit it as you like: comments and order are kept.\n\n";

/// The config file at a path.
///
/// Its methods block for as long as the disk takes, and at most ten seconds for another process that saves.
#[derive(Debug, Clone)]
pub struct ConfigStore {
    path: PathBuf,
    patience: Duration,
}

/// A config file as it was read.
#[derive(Clone)]
pub struct Stored {
    /// The file itself. Empty if there is none.
    pub text: String,
    /// Which state of the file it is.
    pub generation: Generation,
    /// What it says.
    pub file: ConfigFile,
    /// What is odd about it.
    pub warnings: Vec<Fault>,
}

impl Stored {
    /// The file as a document.
    ///
    /// # Errors
    ///
    /// Never for one that came from a [`ConfigStore`].
    pub fn document(&self) -> Result<Document, ServiceError> {
        Document::parse("", &self.text)
    }
}

impl ConfigStore {
    /// The file at `path`, which need not exist. A symbolic link is followed, and stays.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), patience: PATIENCE }
    }

    /// Waits this long for other processes instead of ten seconds.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says. A missing one says nothing.
    ///
    /// # Errors
    ///
    /// With every fault of the file, each with line and column, or why it cannot be read.
    pub fn read(&self) -> Result<Stored, ServiceError> {
        let (text, _) = self.text()?;
        self.stored(text)
    }

    /// The file as it stands, sound or not, for an editor.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is too large or is not text.
    pub fn text(&self) -> Result<(String, Generation), ServiceError> {
        let target = Target::of(&self.path)?;
        let unread = |error| trouble("read", &self.path, error);
        let bytes = Folder::open(&target.dir)
            .and_then(|it| it.map_or(Ok(None), |folder| folder.open_file(&target.name)))
            .and_then(|it| it.map_or(Ok(Vec::new()), |file| read_all(&file, LARGEST_BYTES)))
            .map_err(unread)?;
        let text = self.decode(&bytes)?;
        let generation = Generation::of(&text);
        Ok((text, generation))
    }

    /// Changes the file, and says what the change said and what the file says now.
    ///
    /// `change` gets the file as it is at that moment. If a person saves it meanwhile, it is called again with
    /// what they saved. Nothing is written if it fails or changes nothing.
    ///
    /// # Errors
    ///
    /// `CONFLICT` when the file is not the `expected` one; with every fault when the file is not sound, or would
    /// not be; with the reason when it cannot be saved. In each case the file is as it was.
    pub fn edit<T>(
        &self,
        expected: Option<Generation>,
        mut change: impl FnMut(&mut Document) -> Result<T, ServiceError>,
    ) -> Result<(T, Stored), ServiceError> {
        self.save(expected, |present| {
            let present = present.map_or_else(|| HEADER.to_owned(), str::to_owned);
            let mut document = Document::parse(&self.name(), &present)?;
            let value = change(&mut document)?;
            let text = document.text();
            // A header alone is not worth a file.
            Ok((value, if text == HEADER { String::new() } else { text }))
        })
    }

    /// Replaces the whole file by a text that a person has edited.
    ///
    /// A file that is not sound is replaced only if it is the `expected` one: whoever mends it has seen it.
    ///
    /// # Errors
    ///
    /// As for [`edit`](Self::edit); the faults are those of `text`.
    pub fn replace_text(
        &self,
        expected: Option<Generation>,
        text: &str,
    ) -> Result<Stored, ServiceError> {
        self.stored(text.to_owned())?;
        let replaced = self.save(expected, |present| {
            if let (None, Some(present)) = (expected, present) {
                self.stored(present.to_owned())?;
            }
            Ok(((), text.to_owned()))
        });
        replaced.map(|((), stored)| stored)
    }

    fn save<T>(
        &self,
        expected: Option<Generation>,
        mut next: impl FnMut(Option<&str>) -> Result<(T, String), ServiceError>,
    ) -> Result<(T, Stored), ServiceError> {
        let unsaved = |error| trouble("saved", &self.path, error);
        let target = Target::of(&self.path)?;
        let folder = Folder::make(&target.dir).map_err(unsaved)?;
        let _lock = folder.lock(&target.lock, self.patience).map_err(unsaved)?;
        folder.sweep(&target.beside).map_err(unsaved)?;
        for _attempt in 0..N_ATTEMPTS {
            let seen = folder.see(&target.name, LARGEST_BYTES);
            let seen = seen.map_err(|error| trouble("read", &self.path, error))?;
            let text = seen.bytes().map(|it| self.decode(it)).transpose()?;
            let generation = Generation::of(text.as_deref().unwrap_or_default());
            if expected.is_some_and(|it| it != generation) {
                return Err(self.conflict());
            }
            let (value, new) = next(text.as_deref())?;
            let stored = self.stored(new)?;
            if text.as_ref() == Some(&stored.text) || (text.is_none() && stored.text.is_empty()) {
                return Ok((value, stored));
            }
            let replacement = Replacement {
                name: &target.name,
                beside: &target.beside,
                bytes: stored.text.as_bytes(),
                readers: Readers::AsBefore,
            };
            if folder.publish(&seen, replacement).map_err(unsaved)? == Published::Done {
                return Ok((value, stored));
            }
        }
        Err(self.conflict())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String, ServiceError> {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|error| {
            let (sound, _) = bytes.split_at(error.valid_up_to());
            let sound = String::from_utf8_lossy(sound);
            let line = sound.matches('\n').count() + 1;
            let column = sound.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let message = format!("{}:{line}:{column}: not valid UTF-8", self.name());
            ServiceError::new(ErrorCode::ValidationError, message)
        })
    }

    fn stored(&self, text: String) -> Result<Stored, ServiceError> {
        if text.len() > LARGEST_BYTES {
            let message = format!("`{}` would be larger than 4 MiB", self.name());
            return Err(ServiceError::new(ErrorCode::ValidationError, message));
        }
        let (file, warnings) = document::read(&self.name(), &text)?;
        Ok(Stored { generation: Generation::of(&text), text, file, warnings })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn conflict(&self) -> ServiceError {
        let message = format!("`{}` has been changed by somebody else", self.name());
        ServiceFault::new(ErrorCode::Conflict, message)
            .hint("look at what it says now, and try again")
            .into()
    }
}

/// Without the text, in which people may have put secrets.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("generation", &self.generation)
            .field("file", &self.file)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// A state of a file. Two files with the same bytes have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation([u8; 16]);

impl Generation {
    /// The generation of a file with this text.
    pub fn of(text: &str) -> Self {
        let mut short = [0; 16];
        let digest = Sha256::digest(text.as_bytes());
        short.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self(short)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({self})")
    }
}

/// The text is not a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a generation: 32 hexadecimal digits are expected")]
pub struct NoGeneration;

impl FromStr for Generation {
    type Err = NoGeneration;

    fn from_str(text: &str) -> Result<Self, NoGeneration> {
        if text.len() != 32 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(NoGeneration);
        }
        u128::from_str_radix(text, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_malformed| NoGeneration)
    }
}

/// As many links as the kernel follows.
const N_LINKS: usize = 40;

/// A file by its folder and its name in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) dir: PathBuf,
    pub(super) name: OsString,
    /// The file that is locked, beside it. It stays, because a lock on a file that is gone locks nobody out.
    pub(super) lock: OsString,
    /// The file that is written before it takes the place.
    pub(super) beside: OsString,
}

impl Target {
    pub(super) fn of(path: &Path) -> Result<Self, ServiceError> {
        let mut path = path.to_owned();
        for _link in 0..N_LINKS {
            match fs::read_link(&path) {
                Ok(to) => path = path.parent().map_or_else(|| to.clone(), |dir| dir.join(&to)),
                // No link, or nothing at all: both are what we look for.
                Err(_no_link) => return Self::plain(&path),
            }
        }
        Err(trouble("read", &path, rustix::io::Errno::LOOP.into()))
    }

    fn plain(path: &Path) -> Result<Self, ServiceError> {
        let Some(name) = path.file_name() else {
            let message = format!("`{}` names no file", path.display());
            return Err(ServiceError::new(ErrorCode::ValidationError, message));
        };
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let hidden = |ending: &str| {
            [OsStr::new("."), name, OsStr::new(ending)].into_iter().collect::<OsString>()
        };
        Ok(Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            lock: hidden(".lock"),
            beside: hidden(".tmp"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_survives_being_told() {
        let generation = Generation::of("a");
        assert_eq!(generation.to_string().parse(), Ok(generation));
        assert_ne!(generation, Generation::of("b"));
        for text in ["", "a", &"g".repeat(32), &"+".repeat(32), &"a".repeat(33)] {
            assert_eq!(text.parse::<Generation>(), Err(NoGeneration), "{text:?}");
        }
    }
}
