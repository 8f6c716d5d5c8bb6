//! Secrets in files of their own, `mcp_{name}.key`, which only their owner can read.
//!
//! They are not encrypted yet: that needs a key in the keyring of the system and is later work. Until then
//! they are as safe as any other file of their owner.
//!
//! **Invariant:** a secret's file is old or new, has mode 0600 in a folder with mode 0700 whatever the umask, and
//! no link leads anywhere else. The value leaves this module only as a [`Secret`].

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use toolrack_auth::Secret;
use toolrack_config::{Lookup, Source};
use toolrack_transport::Mask;
use uuid::Uuid;
use zeroize::Zeroize as _;

use crate::atomic_file::{Folder, Published, Readers, Replacement, read_all, trouble};
use crate::error::{ErrorCode, ServiceError, ServiceFault};

/// The longest secret. Keys of certificates fit, files do not.
const LONGEST_BYTES: usize = 64 << 10;
const LONGEST_NAME: usize = 128;
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to start over because somebody else writes the file at the same moment.
const N_ATTEMPTS: usize = 20;
const LOCK: &str = ".lock";
const BESIDE: &str = ".tmp";

/// The secrets of one home.
///
/// A secret is text without NUL, not empty, and at most 64 KiB. One line break at its end is dropped, when it is
/// set and when it is read, because editors and `echo` add one; any other character is kept.
#[derive(Debug, Clone)]
pub struct SecretStore {
    dir: PathBuf,
    salt: Arc<Salt>,
}

/// Which value a secret has, without the value. Comparable within one [`SecretStore`] and its clones only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretVersion([u8; 32]);

/// Makes versions useless to whoever would guess values from them.
struct Salt([u8; 32]);

impl SecretStore {
    /// Keeps secrets in `dir`, which is made when the first one is set.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let mut salt = [0; 32];
        let random = [Uuid::new_v4(), Uuid::new_v4()];
        let bytes = random.iter().flat_map(Uuid::as_bytes);
        salt.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { dir: dir.into(), salt: Arc::new(Salt(salt)) }
    }

    /// Where the secrets are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A secret, or `None` if there is none of this name.
    ///
    /// # Errors
    ///
    /// When the name cannot be one, or the file cannot be read or is not to be trusted.
    pub fn get(&self, name: &str) -> Result<Option<Secret>, ServiceError> {
        let file_name = file_name(name)?;
        let Some(folder) = self.folder()? else { return Ok(None) };
        let unread = |error| trouble("read", &self.dir.join(&file_name), error);
        let Some(file) = folder.open_file(&file_name).map_err(unread)? else { return Ok(None) };
        self.check_file(&file, &file_name)?;
        let bytes = read_all(&file, LONGEST_BYTES + 2).map_err(unread)?;
        let mut text = String::from_utf8(bytes).map_err(|error| {
            error.into_bytes().zeroize();
            unread(io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
        })?;
        text.truncate(without_line_break(&text).len());
        Ok(Some(Secret::new(text)))
    }

    /// Remembers a secret, in place of an old one of the name if there is one.
    ///
    /// # Errors
    ///
    /// When name or value cannot be one, or it cannot be saved; then the old one is as it was.
    pub fn set(&self, name: &str, secret: &Secret) -> Result<(), ServiceError> {
        let file_name = file_name(name)?;
        let text = checked(secret)?;
        let unsaved = |error| trouble("saved", &self.dir.join(&file_name), error);
        Folder::make(&self.dir).map_err(unsaved)?;
        let Some(folder) = self.folder()? else {
            return Err(unsaved(io::ErrorKind::NotFound.into()));
        };
        let _lock = folder.lock(OsStr::new(LOCK), PATIENCE).map_err(unsaved)?;
        for _attempt in 0..N_ATTEMPTS {
            let seen = folder.see(&file_name, LONGEST_BYTES + 2).map_err(unsaved)?;
            let replacement = Replacement {
                name: &file_name,
                beside: OsStr::new(BESIDE),
                bytes: text.as_bytes(),
                readers: Readers::Owner,
            };
            if folder.publish(&seen, replacement).map_err(unsaved)? == Published::Done {
                return Ok(());
            }
        }
        Err(unsaved(io::ErrorKind::TimedOut.into()))
    }

    /// Forgets a secret, and says whether there was one.
    ///
    /// # Errors
    ///
    /// When the name cannot be one, or the file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool, ServiceError> {
        let file_name = file_name(name)?;
        let Some(folder) = self.folder()? else { return Ok(false) };
        let unremoved = |error| trouble("removed", &self.dir.join(&file_name), error);
        let _lock = folder.lock(OsStr::new(LOCK), PATIENCE).map_err(unremoved)?;
        folder.remove(&file_name).map_err(unremoved)
    }

    /// The names of all secrets, sorted.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>, ServiceError> {
        if self.folder()?.is_none() {
            return Ok(Vec::new());
        }
        let unread = |error| trouble("read", &self.dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(unread)? {
            let file_name = entry.map_err(unread)?.file_name();
            let name =
                file_name.to_str().and_then(|it| it.strip_prefix("mcp_")?.strip_suffix(".key"));
            names.extend(name.filter(|it| is_name(it)).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Which value a secret has now, so that a change can be noticed without keeping the value.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn version(&self, name: &str) -> Result<Option<SecretVersion>, ServiceError> {
        let secret = self.get(name)?;
        Ok(secret.map(|it| {
            let digest = Sha256::new_with_prefix(self.salt.0);
            SecretVersion(digest.chain_update(it.reveal()).finalize().into())
        }))
    }

    /// The folder, if it is there. One that others can enter is closed to them first.
    fn folder(&self) -> Result<Option<Folder>, ServiceError> {
        let unread = |error| trouble("read", &self.dir, error);
        let Some(folder) = Folder::open(&self.dir).map_err(unread)? else { return Ok(None) };
        let dir = folder.as_file().map_err(unread)?;
        own(&dir, 0o700, &self.dir)?;
        Ok(Some(folder))
    }

    fn check_file(&self, file: &File, name: &OsStr) -> Result<(), ServiceError> {
        let path = self.dir.join(name);
        let metadata = file.metadata().map_err(|error| trouble("read", &path, error))?;
        if metadata.is_file() && metadata.nlink() > 1 {
            let message = format!("`{}` has a second name elsewhere", path.display());
            return Err(untrusted(message, "remove it, and set the secret again"));
        }
        own(file, 0o600, &path)
    }
}

/// Sees to it that something is ours, and closed to others.
fn own(file: &File, mode: u32, path: &Path) -> Result<(), ServiceError> {
    let unread = |error| trouble("read", path, error);
    let metadata = file.metadata().map_err(unread)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("`{}` belongs to somebody else", path.display());
        return Err(untrusted(message, "change its owner, or use another `TOOLRACK_HOME`"));
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "was open to other users and is closed now");
        file.set_permissions(Permissions::from_mode(mode)).map_err(unread)?;
    }
    Ok(())
}

fn untrusted(message: String, hint: &str) -> ServiceError {
    ServiceFault::new(ErrorCode::Denied, message).hint(hint).into()
}

fn is_name(name: &str) -> bool {
    let letter = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    (1..=LONGEST_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(letter)
}

/// The file of a secret. The name is not told back: somebody may have typed the value in its place.
fn file_name(name: &str) -> Result<OsString, ServiceError> {
    if is_name(name) {
        return Ok(OsString::from(format!("mcp_{name}.key")));
    }
    let message =
        "a secret is named by 1 to 128 letters, digits, `.`, `_` or `-`, and not by a dot first";
    Err(ServiceFault::new(ErrorCode::ValidationError, message).at("name").into())
}

fn without_line_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn checked(secret: &Secret) -> Result<&str, ServiceError> {
    let text = without_line_break(secret.reveal());
    let complaint = if text.is_empty() {
        "a secret must not be empty"
    } else if text.contains('\0') {
        "a secret must not contain the NUL character"
    } else if text.len() > LONGEST_BYTES {
        "a secret must not be longer than 64 KiB"
    } else {
        return Ok(text);
    };
    Err(ServiceFault::new(ErrorCode::ValidationError, complaint).at("value").into())
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt(…)")
    }
}

impl std::fmt::Debug for SecretVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretVersion(…)")
    }
}

/// Whoever knows variables and files.
pub type SharedLookup = Arc<dyn Lookup + Send + Sync>;

/// Secrets from the store, everything else from somebody else.
pub(crate) struct Values {
    pub(crate) secrets: SecretStore,
    pub(crate) others: Option<SharedLookup>,
    pub(crate) mask: Mask,
}

impl Lookup for Values {
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String> {
        let Source::Secret = source else {
            return self.others.as_ref().map_or(Ok(None), |it| it.look_up(source, name));
        };
        let found = self.secrets.get(name).map_err(|error| error.to_string())?;
        Ok(found.map(|secret| {
            self.mask.learn(name, secret.reveal());
            secret.reveal().to_owned()
        }))
    }

    fn advice(&self, variable: &str) -> Option<String> {
        self.others.as_ref()?.advice(variable)
    }
}
