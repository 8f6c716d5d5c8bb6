//! Secret store: one private file per secret, `mcp_{name}.key`; and the lookup of `${…}` variables.
//!
//! The files are not encrypted yet: that needs a key in the system's keyring.
//!
//! **Invariant:** a secret's file is the old version or the new one, has mode 0600 in a directory with mode 0700
//! regardless of the umask, and links are not followed. The value leaves this module only as a [`Secret`].
//! **Invariant:** a secret is read when a server starts and not before, and is redacted from everything that the
//! server writes from then on.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolrack_auth::Secret;
use toolrack_config::{Lookup, VariableSource};
use toolrack_platform::{Directory, FileMode, ReplaceOutcome, Replacement, read_open_file};
use toolrack_transport::Redactor;
use zeroize::Zeroize as _;

use crate::error::{ErrorCode, ErrorDetail, ServiceError, io_error};

/// Size limit of a secret: large enough for the keys of certificates.
const MAX_BYTES: usize = 64 << 10;
const MAX_NAME_LEN: usize = 128;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to start over because another program writes the file at the same moment.
const MAX_ATTEMPTS: usize = 20;
const LOCK_NAME: &str = ".lock";
const TEMP_NAME: &str = ".tmp";

/// The secrets of one [`Home`](crate::Home).
///
/// A secret is non-empty UTF-8 without NUL, at most 64 KiB. One trailing line break is removed when it is set and when
/// it is read, because editors and `echo` add one.
#[derive(Debug, Clone)]
pub struct SecretStore {
    dir: PathBuf,
}

impl SecretStore {
    /// Keeps secrets in `dir`, which is created with the first secret.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory of the secrets.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads a secret; `None` if there is none with this name.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the file cannot be read or trusted.
    pub fn get(&self, name: &str) -> Result<Option<Secret>, ServiceError> {
        let file_name = file_name(name)?;
        let Some(dir) = self.open_dir()? else { return Ok(None) };
        let read_error = |error| io_error("read", &self.dir.join(&file_name), error);
        let Some(file) = dir.open_file(&file_name).map_err(read_error)? else { return Ok(None) };
        // On the open descriptor and not on the path, which another process could
        // exchange in between.
        self.check_file(&file, &file_name)?;
        // Two more bytes for a trailing `\r\n`.
        let bytes = read_open_file(&file, MAX_BYTES + 2).map_err(read_error)?;
        let mut text = String::from_utf8(bytes).map_err(|error| {
            // The bytes are part of a secret; do not leave them in freed memory.
            error.into_bytes().zeroize();
            read_error(io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8"))
        })?;
        // In place: a copy would leave the value in freed memory.
        text.truncate(without_line_break(&text).len());
        Ok(Some(Secret::new(text)))
    }

    /// Stores a secret, replacing an old value.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the file cannot be saved; the old value then stays.
    pub fn set(&self, name: &str, secret: &Secret) -> Result<(), ServiceError> {
        let file_name = file_name(name)?;
        let text = check_value(secret)?;
        let save_error = |error| io_error("save", &self.dir.join(&file_name), error);
        Directory::create(&self.dir).map_err(save_error)?;
        // Opened again: `open_dir` also checks owner and mode.
        let Some(dir) = self.open_dir()? else {
            return Err(save_error(io::ErrorKind::NotFound.into()));
        };
        let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT).map_err(save_error)?;
        for _attempt in 0..MAX_ATTEMPTS {
            // Secrets are written by hand too, so an edit during the save has to be noticed.
            let snapshot = dir.snapshot(&file_name, MAX_BYTES + 2).map_err(save_error)?;
            let replacement = Replacement {
                name: &file_name,
                temp_name: OsStr::new(TEMP_NAME),
                bytes: text.as_bytes(),
                mode: FileMode::Private,
            };
            if dir.replace(&snapshot, replacement).map_err(save_error)? == ReplaceOutcome::Replaced
            {
                return Ok(());
            }
        }
        Err(save_error(io::ErrorKind::TimedOut.into()))
    }

    /// Removes a secret. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool, ServiceError> {
        let file_name = file_name(name)?;
        let Some(dir) = self.open_dir()? else { return Ok(false) };
        let remove_error = |error| io_error("remove", &self.dir.join(&file_name), error);
        let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT).map_err(remove_error)?;
        dir.remove(&file_name).map_err(remove_error)
    }

    /// The names of all secrets, sorted.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<String>, ServiceError> {
        if self.open_dir()?.is_none() {
            return Ok(Vec::new());
        }
        let read_error = |error| io_error("read", &self.dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(read_error)? {
            let file_name = entry.map_err(read_error)?.file_name();
            let name = file_name
                .to_str()
                .and_then(|file_name| file_name.strip_prefix("mcp_")?.strip_suffix(".key"));
            // Other files in the directory, such as the lock, are skipped without an error.
            names.extend(name.filter(|name| is_name(name)).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens the directory, if it exists. Access for other users is removed first.
    fn open_dir(&self) -> Result<Option<Directory>, ServiceError> {
        let read_error = |error| io_error("read", &self.dir, error);
        let Some(dir) = Directory::open(&self.dir).map_err(read_error)? else { return Ok(None) };
        let file = dir.as_file().map_err(read_error)?;
        ensure_private(&file, 0o700, &self.dir)?;
        Ok(Some(dir))
    }

    fn check_file(&self, file: &File, name: &OsStr) -> Result<(), ServiceError> {
        let path = self.dir.join(name);
        let metadata = file.metadata().map_err(|error| io_error("read", &path, error))?;
        if metadata.is_file() && metadata.nlink() > 1 {
            // A hard link would show the secret under a path whose directory this store does not protect.
            let message = format!("`{}` has more than one hard link", path.display());
            return Err(untrusted(message, "remove it and set the secret again"));
        }
        ensure_private(file, 0o600, &path)
    }
}

/// Checks that a file or directory belongs to us, and removes access for other users.
fn ensure_private(file: &File, mode: u32, path: &Path) -> Result<(), ServiceError> {
    let read_error = |error| io_error("read", path, error);
    let metadata = file.metadata().map_err(read_error)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("`{}` belongs to another user", path.display());
        return Err(untrusted(message, "change its owner, or use another `TOOLRACK_HOME`"));
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "removed access for other users");
        file.set_permissions(Permissions::from_mode(mode)).map_err(read_error)?;
    }
    Ok(())
}

fn untrusted(message: String, hint: &str) -> ServiceError {
    ErrorDetail::new(ErrorCode::Denied, message).with_hint(hint).into()
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_LEN).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_allowed)
}

/// File name of a secret. Errors do not repeat the name: users sometimes type the value in its place.
fn file_name(name: &str) -> Result<OsString, ServiceError> {
    if is_name(name) {
        return Ok(OsString::from(format!("mcp_{name}.key")));
    }
    let message =
        "a secret name has 1 to 128 letters, digits, `.`, `_` or `-`, and does not start with `.`";
    Err(ErrorDetail::new(ErrorCode::ValidationError, message).with_field("name").into())
}

fn without_line_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn check_value(secret: &Secret) -> Result<&str, ServiceError> {
    let text = without_line_break(secret.reveal());
    let message = if text.is_empty() {
        "a secret must not be empty"
    } else if text.contains('\0') {
        "a secret must not contain NUL"
    } else if text.len() > MAX_BYTES {
        "a secret must not be longer than 64 KiB"
    } else {
        return Ok(text);
    };
    Err(ErrorDetail::new(ErrorCode::ValidationError, message).with_field("value").into())
}

/// Resolves `${…}` variables and files that configs refer to.
pub type SharedLookup = Arc<dyn Lookup + Send + Sync>;

/// Resolves secrets from the store, everything else with the fallback.
pub(crate) struct VariableLookup {
    pub(crate) secrets: SecretStore,
    pub(crate) fallback: Option<SharedLookup>,
    pub(crate) redactor: Redactor,
}

impl Lookup for VariableLookup {
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String> {
        let VariableSource::Secret = source else {
            return self
                .fallback
                .as_ref()
                .map_or(Ok(None), |fallback| fallback.look_up(source, name));
        };
        let found = self.secrets.get(name).map_err(|error| error.to_string())?;
        Ok(found.map(|secret| {
            // Before the value is handed out: the server cannot print it any earlier.
            self.redactor.add_secret(name, secret.reveal());
            secret.reveal().to_owned()
        }))
    }

    fn advice(&self, variable: &str) -> Option<String> {
        self.fallback.as_ref()?.advice(variable)
    }
}
