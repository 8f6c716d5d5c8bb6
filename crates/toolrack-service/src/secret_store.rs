//! Secrets: the trait [`SecretStore`], its implementation in private files, and the lookup of `${…}` variables.
//!
//! In files, a secret with a name of its own is `mcp_{name}.key`. Those of one server, whose names start with its id,
//! share `mcp_{id}.key`, a JSON object. The files are not encrypted yet: that needs a key in the system's keyring.
//!
//! **Invariant:** a secret's file is the old version or the new one, has mode 0600 in a directory with mode 0700
//! regardless of the umask, and links are not followed. The value leaves this module only as a [`Secret`].
//! **Invariant:** a secret is read when a server starts and not before, and is redacted from everything that the
//! server writes from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
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
use uuid::Uuid;
use zeroize::Zeroize as _;

use crate::error::{ErrorCode, ErrorDetail, ServiceError, io_error};

/// Size limit of a secret: large enough for the keys of certificates.
const MAX_BYTES: usize = 64 << 10;
/// Size limit of the file with all secrets of one server.
const MAX_SERVER_BYTES: usize = 1 << 20;
const MAX_NAME_LEN: usize = 128;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to start over because another program writes the file at the same moment.
const MAX_ATTEMPTS: usize = 20;
const LOCK_NAME: &str = ".lock";
const TEMP_NAME: &str = ".tmp";

/// Where a service keeps secrets: by default in files ([`FileSecretStore`]). An application with a secrets manager of
/// its own implements this trait and passes it in [`ServiceOptions::secrets`](crate::ServiceOptions::secrets).
///
/// The methods may block, as a keyring does. An error must not contain a secret.
pub trait SecretStore: Send + Sync + fmt::Debug {
    /// Reads a secret, empty or not; `None` if there is none with this name.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the secret cannot be read.
    fn get(&self, name: &str) -> Result<Option<Secret>, ServiceError>;

    /// Reads a secret for a server, which would start with an empty one and fail later, for a reason of its own.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), or the secret is empty.
    fn get_for_server(&self, name: &str) -> Result<Option<Secret>, ServiceError> {
        let found = self.get(name)?;
        if found.as_ref().is_some_and(|secret| secret.reveal().is_empty()) {
            let message = format!("secret `{name}` is empty");
            let detail = ErrorDetail::new(ErrorCode::ValidationError, message);
            return Err(detail.with_hint("set it again, or remove it").into());
        }
        Ok(found)
    }

    /// Stores a secret, replacing an old value.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the secret cannot be saved; the old value then stays.
    fn set(&self, name: &str, secret: &Secret) -> Result<(), ServiceError>;

    /// Removes a secret. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the secret cannot be removed.
    fn remove(&self, name: &str) -> Result<bool, ServiceError>;

    /// The names of all secrets, sorted. The service asks for them to remove those of a deleted server, which start
    /// with its id.
    ///
    /// # Errors
    ///
    /// The names cannot be read.
    fn list(&self) -> Result<Vec<String>, ServiceError>;
}

/// Secrets in private files, those of one [`Home`](crate::Home).
///
/// A secret is set to non-empty UTF-8 without NUL, at most 64 KiB. One trailing line break is removed when it is set and when
/// it is read, because editors and `echo` add one.
#[derive(Debug, Clone)]
pub struct FileSecretStore {
    dir: PathBuf,
}

/// The secrets in one file; in that of a server by variable, otherwise one with an empty name.
type Secrets = BTreeMap<String, Secret>;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// One secret, as text.
    Plain,
    /// The secrets of one server, as a JSON object.
    Server,
}

/// Where a secret is.
struct Place<'n> {
    file: OsString,
    /// The variable, in the file of a server; empty otherwise.
    entry: &'n str,
    kind: FileKind,
    /// Its own file, in which earlier versions kept a secret of a server.
    old_file: Option<OsString>,
}

impl SecretStore for FileSecretStore {
    /// One that an earlier version kept elsewhere is moved.
    fn get(&self, name: &str) -> Result<Option<Secret>, ServiceError> {
        let place = Place::new(name)?;
        let Some(dir) = self.open_dir()? else { return Ok(None) };
        let find = || Ok(self.read(&dir, &place.file, place.kind)?.remove(place.entry));
        if let Some(found) = find()? {
            return Ok(Some(found));
        }
        let Some(old_file) = &place.old_file else { return Ok(None) };
        let Some(old) = self.read(&dir, old_file, FileKind::Plain)?.remove("") else {
            // The new file once more: another process may have moved the secret in between.
            return find();
        };
        // A newer value that another process has set in between wins.
        let moved = self.edit(&dir, &place, "save", |secrets| {
            secrets.entry(place.entry.to_owned()).or_insert_with(|| old.clone());
        });
        match moved {
            Ok(()) => find(),
            Err(error) => {
                tracing::warn!(%error, "cannot move a secret of an earlier version");
                Ok(Some(old))
            }
        }
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), ServiceError> {
        let place = Place::new(name)?;
        let text = check_value(secret)?;
        let save_error = |error| io_error("save", &self.dir.join(&place.file), error);
        Directory::create(&self.dir).map_err(save_error)?;
        // Opened again: `open_dir` also checks owner and mode.
        let Some(dir) = self.open_dir()? else {
            return Err(save_error(io::ErrorKind::NotFound.into()));
        };
        self.edit(&dir, &place, "save", |secrets| {
            secrets.insert(place.entry.to_owned(), Secret::new(text));
        })
    }

    fn remove(&self, name: &str) -> Result<bool, ServiceError> {
        let place = Place::new(name)?;
        let Some(dir) = self.open_dir()? else { return Ok(false) };
        let remove_error = |error| io_error("remove", &self.dir.join(&place.file), error);
        let Some(old_file) = &place.old_file else {
            let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT).map_err(remove_error)?;
            // Without reading it: also a file that cannot be read can be removed.
            return dir.remove(&place.file).map_err(remove_error);
        };
        let mut existed = self.dir.join(old_file).is_file();
        self.edit(&dir, &place, "remove", |secrets| {
            existed |= secrets.remove(place.entry).is_some();
        })?;
        Ok(existed)
    }

    fn list(&self) -> Result<Vec<String>, ServiceError> {
        let Some(dir) = self.open_dir()? else { return Ok(Vec::new()) };
        let read_error = |error| io_error("read", &self.dir, error);
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&self.dir).map_err(read_error)? {
            let file_name = entry.map_err(read_error)?.file_name();
            let name = file_name
                .to_str()
                .and_then(|file_name| file_name.strip_prefix("mcp_")?.strip_suffix(".key"));
            // Other files in the directory, such as the lock, are skipped without an error.
            let Some(name) = name.filter(|name| is_name(name)) else { continue };
            let place = Place::new(name)?;
            if place.kind == FileKind::Plain || place.old_file.is_some() {
                names.insert(name.to_owned());
                continue;
            }
            let full_name = |variable: &String| match variable.as_str() {
                "" => name.to_owned(),
                variable => format!("{name}.{variable}"),
            };
            match self.read(&dir, &file_name, FileKind::Server) {
                Ok(secrets) => {
                    names.extend(secrets.keys().map(full_name).filter(|name| is_name(name)));
                }
                Err(error) => tracing::warn!(%error, "cannot list the secrets of a server"),
            }
        }
        Ok(names.into_iter().collect())
    }
}

impl FileSecretStore {
    /// Keeps secrets in `dir`, which is created with the first secret.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory of the secrets.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads the secrets of a file; none if it does not exist.
    fn read(
        &self,
        dir: &Directory,
        file_name: &OsStr,
        kind: FileKind,
    ) -> Result<Secrets, ServiceError> {
        let read_error = |error| io_error("read", &self.dir.join(file_name), error);
        let Some(file) = dir.open_file(file_name).map_err(read_error)? else {
            return Ok(Secrets::new());
        };
        // On the open descriptor and not on the path, which another process could
        // exchange in between.
        self.check_file(&file, file_name)?;
        let bytes = read_open_file(&file, kind.max_bytes()).map_err(read_error)?;
        kind.parse(bytes).map_err(read_error)
    }

    /// Changes the secrets of a file, and removes the old file. A file without secrets is removed.
    fn edit(
        &self,
        dir: &Directory,
        place: &Place<'_>,
        verb: &str,
        mut change: impl FnMut(&mut Secrets),
    ) -> Result<(), ServiceError> {
        let save_error = |error| io_error(verb, &self.dir.join(&place.file), error);
        let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT).map_err(save_error)?;
        for _attempt in 0..MAX_ATTEMPTS {
            // Secrets are written by hand too, so an edit during the save has to be noticed.
            let snapshot = dir.snapshot(&place.file, place.kind.max_bytes()).map_err(save_error)?;
            // A plain secret is replaced whatever it was, even if it is not valid UTF-8.
            let present = snapshot.bytes().filter(|_| place.kind == FileKind::Server);
            let present = present.map(|bytes| place.kind.parse(bytes.to_vec())).transpose();
            let mut secrets = present.map_err(save_error)?.unwrap_or_default();
            change(&mut secrets);
            if secrets.is_empty() {
                dir.remove(&place.file).map_err(save_error)?;
            } else {
                let text = place.encode(&secrets)?;
                let replacement = Replacement {
                    name: &place.file,
                    temp_name: OsStr::new(TEMP_NAME),
                    bytes: text.reveal().as_bytes(),
                    mode: FileMode::Private,
                };
                let outcome = dir.replace(&snapshot, replacement).map_err(save_error)?;
                if outcome != ReplaceOutcome::Replaced {
                    continue;
                }
            }
            // Last: a crash in between leaves both files, and the new one counts.
            let old_file = place.old_file.as_ref();
            return old_file.map_or(Ok(()), |old| dir.remove(old).map(drop)).map_err(save_error);
        }
        Err(save_error(io::ErrorKind::TimedOut.into()))
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

impl<'n> Place<'n> {
    /// Errors do not repeat the name: users sometimes type the value in its place.
    fn new(name: &'n str) -> Result<Self, ServiceError> {
        if !is_name(name) {
            let message = "a secret name has 1 to 128 letters, digits, `.`, `_` or `-`, and does not start with `.`";
            let detail = ErrorDetail::new(ErrorCode::ValidationError, message);
            return Err(detail.with_field("name").into());
        }
        let own_file = OsString::from(format!("mcp_{name}.key"));
        let (id, entry) = name.split_once('.').unwrap_or((name, ""));
        // In the spelling of ids only, so that no two names share an entry.
        let is_id = Uuid::parse_str(id).is_ok_and(|parsed| parsed.to_string() == id);
        if !is_id || name.ends_with('.') {
            return Ok(Self { file: own_file, entry: "", kind: FileKind::Plain, old_file: None });
        }
        let file = OsString::from(format!("mcp_{id}.key"));
        let old_file = (!entry.is_empty()).then_some(own_file);
        Ok(Self { file, entry, kind: FileKind::Server, old_file })
    }

    fn encode(&self, secrets: &Secrets) -> Result<Secret, ServiceError> {
        if let (FileKind::Plain, Some(secret)) = (self.kind, secrets.get("")) {
            return Ok(secret.clone());
        }
        let values: BTreeMap<&str, &str> =
            secrets.iter().map(|(name, secret)| (name.as_str(), secret.reveal())).collect();
        // Maps with string keys always serialize to JSON.
        let text = Secret::new(serde_json::to_string(&values).unwrap_or_default());
        if text.reveal().len() > MAX_SERVER_BYTES {
            let message = "the secrets of one server must not be longer than 1 MiB";
            let detail = ErrorDetail::new(ErrorCode::ValidationError, message);
            return Err(detail.with_field("value").into());
        }
        Ok(text)
    }
}

impl FileKind {
    /// Size limit of the file.
    fn max_bytes(self) -> usize {
        match self {
            // Two more bytes for a trailing `\r\n`.
            FileKind::Plain => MAX_BYTES + 2,
            FileKind::Server => MAX_SERVER_BYTES,
        }
    }

    /// The secrets in a file. A file of a server that is no JSON object is one secret, whose name is the id.
    fn parse(self, bytes: Vec<u8>) -> io::Result<Secrets> {
        let mut text = String::from_utf8(bytes).map_err(|error| {
            // The bytes are part of a secret; do not leave them in freed memory.
            error.into_bytes().zeroize();
            io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8")
        })?;
        if self == FileKind::Server
            && let Ok(secrets) = serde_json::from_str(&text)
        {
            text.zeroize();
            return Ok(secrets);
        }
        // In place: a copy would leave the value in freed memory.
        text.truncate(without_line_break(&text).len());
        Ok(Secrets::from([(String::new(), Secret::new(text))]))
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
    pub(crate) secrets: Arc<dyn SecretStore>,
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
        let found = self.secrets.get_for_server(name).map_err(|error| error.to_string())?;
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
