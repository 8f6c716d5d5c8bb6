//! API keys of clients over TCP: names, scopes, and the private file that holds their hashes.
//!
//! A client sends its key to whatever listens on the port, and another user of the machine may listen there while the
//! daemon is down. A key is therefore worth no more than the one client needs: the MCP endpoints of one agent, or of
//! one server. Only an `admin` key may use the control API. Programs of the same user need no key: they use the socket.
//!
//! **Invariant:** the file holds no key, only SHA-256 hashes of keys with 256 random bits. A key is shown once, when it
//! is made.
//!
//! **Invariant:** a change is made under a lock, of the file as it is at that moment, and replaces the file atomically:
//! concurrent changes are all kept, and a revoked key never comes back.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;
use toolrack_platform::{Directory, FileLock, read_open_file, replace, unix_time_ms};
use toolrack_service::Home;

/// Maximum number of keys.
pub const MAX_KEYS: usize = 256;
/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 64;
/// Every key begins so, which makes a key in a file or a log easy to find.
const PREFIX: &str = "trk_";
/// Length of the random part of a key.
const KEY_BYTES: usize = 32;
/// Length of a key's id. It selects a key and proves nothing.
const ID_BYTES: usize = 8;
/// Maximum size of the file: [`MAX_KEYS`] entries, each with names of agent and server.
const MAX_FILE_BYTES: usize = 512 << 10;
const FILE: &str = "keys.json";
const LOCK_FILE: &str = "keys.lock";
/// A change takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const FORMAT: u32 = 1;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A key: a prefix and 256 random bits as lower-case hexadecimal digits.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    fn random() -> Result<Self, KeyError> {
        let mut bytes = [0_u8; KEY_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_unspecified| KeyError::NoRandomness)?;
        Ok(Self(format!("{PREFIX}{}", encode_hex(&bytes))))
    }

    /// A key that its user has typed or stored.
    pub fn from_text(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The secret value. The name makes every use easy to find.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its hash, which stands for it in the file and in proofs.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// SHA-256 of a key. Its holder can verify the daemon, and can pass as the daemon, but cannot use the key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub(crate) fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The id of the key. It tells nothing about the hash.
    pub fn id(&self) -> String {
        let id = digest(&SHA256, &[b"toolrack key id\0", self.0.as_slice()].concat());
        encode_hex(id.as_ref().get(..ID_BYTES).unwrap_or_default())
    }

    /// The answer to a challenge, which only a holder of the hash can compute. It names the address, so that a program
    /// at another address cannot pass on the answer of the daemon.
    pub fn proof(&self, addr: &str, challenge: &str) -> String {
        proof(&self.0, addr, challenge)
    }

    /// Compares an answer with the expected one, in constant time.
    pub fn is_proof(&self, answer: &str, addr: &str, challenge: &str) -> bool {
        self.proof(addr, challenge).as_bytes().ct_eq(answer.as_bytes()).into()
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = decode_hex(&text).and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
    }
}

/// HMAC-SHA-256 under a domain of its own, so that no answer means anything elsewhere.
pub(crate) fn proof(secret: &[u8], addr: &str, challenge: &str) -> String {
    let text = format!("toolrack proof\0{addr}\0{challenge}");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    encode_hex(tag.as_ref())
}

/// What a key may be used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "lowercase")]
pub enum KeyScope {
    /// Everything.
    Admin,
    /// The MCP endpoints of one agent, and nothing else.
    Agent {
        /// The agent. `None` for the default servers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// The only server, if the key is for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<String>,
    },
}

impl KeyScope {
    /// Whether the key may use the MCP endpoint of an agent, or of one of its servers.
    pub(crate) fn allows(
        &self,
        endpoint_agent: Option<&str>,
        endpoint_server: Option<&str>,
    ) -> bool {
        match self {
            Self::Admin => true,
            Self::Agent { agent, server } => {
                agent.as_deref() == endpoint_agent
                    && (server.is_none() || server.as_deref() == endpoint_server)
            }
        }
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("everything"),
            Self::Agent { agent: None, server: None } => f.write_str("the default servers"),
            Self::Agent { agent: Some(agent), server: None } => write!(f, "agent `{agent}`"),
            Self::Agent { agent: None, server: Some(server) } => write!(f, "server `{server}`"),
            Self::Agent { agent: Some(agent), server: Some(server) } => {
                write!(f, "server `{server}` of agent `{agent}`")
            }
        }
    }
}

/// A key in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyEntry {
    /// Its name, unique in the home.
    pub name: String,
    /// What it may be used for.
    #[serde(flatten)]
    pub scope: KeyScope,
    sha256: KeyHash,
    /// When it was made or rotated, in Unix time in milliseconds.
    pub created_ms: u64,
    /// Begin of the day (UTC) on which it was used last, in Unix time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<u64>,
    /// Whether it was the token of an earlier version, which could be used for everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub legacy: bool,
}

impl KeyEntry {
    fn new(name: &str, scope: KeyScope, key: &ApiKey) -> Self {
        let created_ms = unix_time_ms();
        let (name, sha256) = (name.to_owned(), key.hash());
        Self { name, scope, sha256, created_ms, last_used_ms: None, legacy: false }
    }

    /// Its hash.
    pub fn hash(&self) -> &KeyHash {
        &self.sha256
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    keys: Vec<KeyEntry>,
}

/// The file with the keys of a home. Its methods wait for the disk.
#[derive(Debug, Clone)]
pub struct KeyFile {
    dir: PathBuf,
}

impl KeyFile {
    /// The file of a home.
    pub fn new(home: &Home) -> Self {
        Self { dir: home.dir().to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// All keys, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is damaged, or other users may have read or written it.
    pub fn list(&self) -> Result<Vec<KeyEntry>, KeyError> {
        let read_error = |source| self.error("read", source);
        let Some(dir) = Directory::open(&self.dir).map_err(read_error)? else {
            return Ok(Vec::new());
        };
        let Some(file) = dir.open_file(OsStr::new(FILE)).map_err(read_error)? else {
            return Ok(Vec::new());
        };
        let metadata = file.metadata().map_err(read_error)?;
        let own = rustix::process::geteuid().as_raw();
        // A user who can write this file has all rights, and one who can read it can pass as the daemon.
        if metadata.uid() != own || metadata.mode() & 0o077 != 0 {
            return Err(KeyError::NotPrivate(self.path()));
        }
        let bytes = read_open_file(&file, MAX_FILE_BYTES).map_err(read_error)?;
        let damaged = |reason: String| KeyError::Damaged { path: self.path(), reason };
        let content: Content =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        match content {
            Content { format: FORMAT, keys } if keys.len() <= MAX_KEYS => Ok(keys),
            Content { format: FORMAT, .. } => Err(damaged(format!("more than {MAX_KEYS} keys"))),
            Content { format, .. } => Err(damaged(format!("unknown format {format}"))),
        }
    }

    /// Makes a key.
    ///
    /// # Errors
    ///
    /// The name is invalid or taken, there are too many keys, or the file cannot be changed.
    pub fn create(&self, name: &str, scope: KeyScope) -> Result<(KeyEntry, ApiKey), KeyError> {
        check_name(name)?;
        let key = ApiKey::random()?;
        let entry = KeyEntry::new(name, scope, &key);
        self.add(entry.clone())?;
        Ok((entry, key))
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// There is no such key, or the file cannot be changed.
    pub fn revoke(&self, name: &str) -> Result<KeyEntry, KeyError> {
        self.edit(|keys| {
            let index = keys.iter().position(|entry| entry.name == name);
            index.map(|index| keys.remove(index)).ok_or_else(|| unknown(name, keys))
        })
    }

    /// Replaces the secret of a key. Its name and scope stay.
    ///
    /// # Errors
    ///
    /// There is no such key, or the file cannot be changed.
    pub fn rotate(&self, name: &str) -> Result<(KeyEntry, ApiKey), KeyError> {
        let key = ApiKey::random()?;
        let entry = self.edit(|keys| match keys.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => {
                *entry = KeyEntry::new(name, entry.scope.clone(), &key);
                Ok(entry.clone())
            }
            None => Err(unknown(name, keys)),
        })?;
        Ok((entry, key))
    }

    /// Keeps the token of an earlier version as a key for the servers of one agent. Returns its name.
    pub(crate) fn add_legacy(&self, token: &str, agent: Option<&str>) -> Result<String, KeyError> {
        let key = ApiKey::from_text(token);
        let scope = KeyScope::Agent { agent: agent.map(str::to_owned), server: None };
        self.edit(|keys| {
            if let Some(known) = keys.iter().find(|entry| entry.sha256.matches(&key.hash())) {
                return Ok(known.name.clone());
            }
            let is_free = |name: &String| keys.iter().all(|entry| entry.name != *name);
            let mut names = (2..=MAX_KEYS).map(|number| format!("legacy-{number}"));
            let name = Some("legacy".to_owned()).filter(is_free).or_else(|| names.find(is_free));
            let name = name.ok_or(KeyError::TooMany)?;
            let entry = KeyEntry { legacy: true, ..KeyEntry::new(&name, scope, &key) };
            push(keys, entry)?;
            Ok(name)
        })
    }

    /// Records that a key was used on the day of `now_ms`. Does nothing if the key was revoked or the home was deleted
    /// meanwhile.
    pub(crate) fn record_use(&self, hash: &KeyHash, now_ms: u64) -> Result<(), KeyError> {
        let dir = Directory::open(&self.dir).map_err(|source| self.error("use", source))?;
        let Some(dir) = dir else { return Ok(()) };
        let _lock = self.lock(&dir)?;
        let mut keys = self.list()?;
        let Some(entry) = keys.iter_mut().find(|entry| entry.sha256.matches(hash)) else {
            return Ok(());
        };
        entry.last_used_ms = Some(day(now_ms) * DAY_MS);
        self.write(keys)
    }

    fn add(&self, entry: KeyEntry) -> Result<(), KeyError> {
        self.edit(|keys| push(keys, entry))
    }

    /// Changes the keys under the lock.
    fn edit<T>(
        &self,
        change: impl FnOnce(&mut Vec<KeyEntry>) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        let dir = Directory::create(&self.dir).map_err(|source| self.error("use", source))?;
        let _lock = self.lock(&dir)?;
        let mut keys = self.list()?;
        let changed = change(&mut keys)?;
        self.write(keys)?;
        Ok(changed)
    }

    fn lock(&self, dir: &Directory) -> Result<FileLock, KeyError> {
        let lock = dir.lock(OsStr::new(LOCK_FILE), LOCK_TIMEOUT);
        lock.map_err(|source| self.error("lock", source))
    }

    /// Replaces the file. The caller holds the lock.
    fn write(&self, keys: Vec<KeyEntry>) -> Result<(), KeyError> {
        let content = serde_json::to_vec_pretty(&Content { format: FORMAT, keys });
        let content = content.map_err(|error| self.error("write", error.into()))?;
        replace(&self.path(), &content).map_err(|source| self.error("write", source))
    }

    fn error(&self, action: &'static str, source: io::Error) -> KeyError {
        KeyError::File { action, path: self.path(), source }
    }
}

/// The day of a time, counted from 1970.
pub(crate) fn day(time_ms: u64) -> u64 {
    time_ms / DAY_MS
}

fn push(keys: &mut Vec<KeyEntry>, entry: KeyEntry) -> Result<(), KeyError> {
    if keys.iter().any(|known| known.name == entry.name) {
        return Err(KeyError::Duplicate(entry.name));
    }
    if keys.len() >= MAX_KEYS {
        return Err(KeyError::TooMany);
    }
    keys.push(entry);
    Ok(())
}

fn unknown(name: &str, keys: &[KeyEntry]) -> KeyError {
    let names = keys.iter().map(|entry| entry.name.clone()).collect();
    KeyError::Unknown { name: name.to_owned(), names }
}

fn check_name(name: &str) -> Result<(), KeyError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with(['.', '-']);
    if is_valid { Ok(()) } else { Err(KeyError::InvalidName) }
}

pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The bytes of lower-case hexadecimal digits.
pub(crate) fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Why keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name cannot be that of a key.
    #[error(
        "a key name has 1 to 64 letters, digits, `.`, `_` or `-`, and does not start with `.` or `-`"
    )]
    InvalidName,
    /// Another key has this name.
    #[error("a key named `{0}` already exists")]
    Duplicate(String),
    /// No key has this name.
    #[error("no key is named `{name}`")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all keys.
        names: Vec<String>,
    },
    /// The limit is reached.
    #[error("there are already {MAX_KEYS} keys")]
    TooMany,
    /// Other users may have read or written the file.
    #[error("`{}` belongs to another user, or other users may read or write it", .0.display())]
    NotPrivate(PathBuf),
    /// The file is not a list of keys.
    #[error("`{}` is damaged: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file operation failed.
    #[error("cannot {action} `{}`", .path.display())]
    File {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The IO error.
        source: io::Error,
    },
    /// The system random number generator failed.
    #[error("the system random number generator failed")]
    NoRandomness,
}

impl KeyError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        let remove = |path: &Path| {
            format!("remove `{}`, which revokes all keys, and make new ones", path.display())
        };
        match self {
            Self::InvalidName => "choose a name such as `cursor`".to_owned(),
            Self::Duplicate(name) => format!(
                "choose another name, or replace its secret with `toolrack key rotate {name}`"
            ),
            Self::Unknown { .. } => "list keys with `toolrack key list`".to_owned(),
            Self::TooMany => {
                "revoke keys that are not used, with `toolrack key revoke NAME`".to_owned()
            }
            Self::NotPrivate(path) | Self::Damaged { path, .. } => remove(path),
            Self::File { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
                "another program changes the keys; try again".to_owned()
            }
            Self::File { .. } => {
                "check the permissions and free space of the data directory".to_owned()
            }
            Self::NoRandomness => "try again".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn agent(agent: Option<&str>, server: Option<&str>) -> KeyScope {
        KeyScope::Agent { agent: agent.map(str::to_owned), server: server.map(str::to_owned) }
    }

    fn file() -> (tempfile::TempDir, KeyFile) {
        let dir = tempfile::tempdir().unwrap();
        let keys = KeyFile::new(&Home::in_dir(dir.path().join("home")));
        (dir, keys)
    }

    fn names(file: &KeyFile) -> Vec<String> {
        file.list().unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn key_is_shown_once_and_only_its_hash_is_stored() {
        let (_dir, keys) = file();
        assert!(keys.list().unwrap().is_empty());
        let (entry, key) = keys.create("one", agent(Some("work"), Some("git"))).unwrap();
        let text = fs::read_to_string(keys.path()).unwrap();
        let secret = key.reveal().strip_prefix("trk_").unwrap();
        assert_eq!((secret.len(), decode_hex(secret).unwrap().len()), (64, 32));
        assert!(!text.contains(secret) && text.contains(&encode_hex(&entry.sha256.0)), "{text}");
        assert_eq!(fs::metadata(keys.path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            (format!("{key:?}"), format!("{:?}", key.hash())),
            ("ApiKey(…)".into(), "KeyHash(…)".into())
        );
        let [read] = keys.list().unwrap().try_into().unwrap();
        assert_eq!((&read.name, &read.scope, read.legacy), (&entry.name, &entry.scope, false));
        assert!(read.sha256.matches(&key.hash()));
        let (_, other) = keys.create("two", KeyScope::Admin).unwrap();
        assert_ne!(key.reveal(), other.reveal());
        assert!(!other.hash().matches(&key.hash()));
    }

    #[test]
    fn wrong_input_has_a_clear_error() {
        let (_dir, keys) = file();
        keys.create("one", KeyScope::Admin).unwrap();
        for name in ["", ".one", "-one", "a b", "a/b", "ä", "a\u{202e}", &"x".repeat(65)] {
            let error = keys.create(name, KeyScope::Admin).unwrap_err();
            assert!(matches!(error, KeyError::InvalidName), "{name}");
        }
        let error = keys.create("one", KeyScope::Admin).unwrap_err();
        assert_eq!(error.to_string(), "a key named `one` already exists");
        assert!(error.hint().contains("toolrack key rotate one"));
        for error in [keys.revoke("two").unwrap_err(), keys.rotate("two").unwrap_err()] {
            assert!(matches!(error, KeyError::Unknown { ref names, .. } if names == &["one"]));
        }
        for number in 1..MAX_KEYS {
            keys.create(&format!("key-{number}"), KeyScope::Admin).unwrap();
        }
        let error = keys.create("more", KeyScope::Admin).unwrap_err();
        assert_eq!(error.to_string(), "there are already 256 keys");
        assert!(matches!(keys.add_legacy("token", None), Err(KeyError::TooMany)));
        assert_eq!(keys.list().unwrap().len(), MAX_KEYS);
    }

    #[test]
    fn rotation_keeps_name_and_scope() {
        let (_dir, keys) = file();
        let name = keys.add_legacy("old", Some("work")).unwrap();
        assert_eq!(name, "legacy");
        assert!(keys.list().unwrap()[0].legacy);
        let (entry, key) = keys.rotate("legacy").unwrap();
        let [read] = keys.list().unwrap().try_into().unwrap();
        assert_eq!((read.scope, read.legacy), (agent(Some("work"), None), false));
        assert!(read.sha256.matches(&key.hash()) && entry.sha256.matches(&key.hash()));
        assert!(!read.sha256.matches(&KeyHash::of("old")));
        keys.revoke("legacy").unwrap();
        assert!(keys.list().unwrap().is_empty());
    }

    #[test]
    fn legacy_token_is_kept_once_under_a_free_name() {
        let (_dir, keys) = file();
        keys.create("legacy", KeyScope::Admin).unwrap();
        for _ in 0..2 {
            assert_eq!(keys.add_legacy("old", None).unwrap(), "legacy-2");
        }
        assert_eq!(names(&keys), ["legacy", "legacy-2"]);
    }

    #[test]
    fn use_is_recorded_by_day_and_revives_no_key() {
        let (_dir, keys) = file();
        let (entry, key) = keys.create("one", KeyScope::Admin).unwrap();
        keys.record_use(&key.hash(), 10 * DAY_MS + 7).unwrap();
        assert_eq!(keys.list().unwrap()[0].last_used_ms, Some(10 * DAY_MS));
        keys.revoke(&entry.name).unwrap();
        let before = fs::metadata(keys.path()).unwrap().ino();
        keys.record_use(&key.hash(), 11 * DAY_MS).unwrap();
        assert!(keys.list().unwrap().is_empty());
        assert_eq!(fs::metadata(keys.path()).unwrap().ino(), before, "nothing is written");
        fs::remove_dir_all(&keys.dir).unwrap();
        keys.record_use(&key.hash(), 12 * DAY_MS).unwrap();
        assert!(!keys.dir.exists(), "a deleted home stays deleted");
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        let (_dir, keys) = file();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let keys = &keys;
                scope.spawn(move || {
                    for number in 0..8 {
                        keys.create(&format!("{thread}-{number}"), KeyScope::Admin).unwrap();
                    }
                });
            }
        });
        assert_eq!(names(&keys).len(), 32);
    }

    #[test]
    fn damaged_or_foreign_file_is_refused_and_left_alone() {
        let (_dir, keys) = file();
        keys.create("one", KeyScope::Admin).unwrap();
        let good = fs::read_to_string(keys.path()).unwrap();
        let write = |text: &str| replace(&keys.path(), text.as_bytes()).unwrap();
        for text in [
            "",
            "[]",
            &good.replace("\"format\": 1", "\"format\": 2"),
            &good.replace("admin", "root"),
        ] {
            write(text);
            assert!(matches!(keys.list(), Err(KeyError::Damaged { .. })), "{text}");
            let error = keys.create("two", KeyScope::Admin).unwrap_err();
            assert!(error.hint().contains("remove"), "{error}");
            assert_eq!(fs::read_to_string(keys.path()).unwrap(), text);
        }
        write(&good);
        for mode in [0o620, 0o640, 0o604] {
            fs::set_permissions(keys.path(), Permissions::from_mode(mode)).unwrap();
            assert!(matches!(keys.list(), Err(KeyError::NotPrivate(_))), "{mode:o}");
        }
        fs::remove_file(keys.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", keys.path()).unwrap();
        assert!(matches!(keys.list(), Err(KeyError::File { .. })));
    }

    #[test]
    fn scope_allows_one_agent_or_one_server() {
        let check = |scope: &KeyScope, allowed: &[(Option<&str>, Option<&str>)]| {
            for agent in [None, Some("work"), Some("home")] {
                for server in [None, Some("git"), Some("mail")] {
                    let expected = allowed.contains(&(agent, server));
                    assert_eq!(
                        scope.allows(agent, server),
                        expected,
                        "{scope} {agent:?} {server:?}"
                    );
                }
            }
        };
        let (work, git, mail) = (Some("work"), Some("git"), Some("mail"));
        check(&agent(None, None), &[(None, None), (None, git), (None, mail)]);
        check(&agent(work, None), &[(work, None), (work, git), (work, mail)]);
        check(&agent(None, git), &[(None, git)]);
        check(&agent(work, git), &[(work, git)]);
        assert!(KeyScope::Admin.allows(None, None) && KeyScope::Admin.allows(work, git));
    }

    #[test]
    fn proof_depends_on_key_address_and_challenge() {
        let hash = KeyHash::of("a");
        let (addr, challenge) = ("127.0.0.1:7733", "0123456789abcdef");
        let answer = hash.proof(addr, challenge);
        assert_eq!(answer.len(), 64);
        assert!(hash.is_proof(&answer, addr, challenge));
        let others = [
            KeyHash::of("b").proof(addr, challenge),
            hash.proof("127.0.0.1:7734", challenge),
            hash.proof("[::1]:7733", challenge),
            hash.proof(addr, "0123456789abcdee"),
            // Neither the hash nor the id is an answer.
            encode_hex(&hash.0),
            hash.id(),
            String::new(),
        ];
        for other in others {
            assert!(!hash.is_proof(&other, addr, challenge), "{other}");
        }
        assert_eq!(hash.id().len(), 16);
        assert_ne!(hash.id(), KeyHash::of("b").id());
        assert!(!encode_hex(&hash.0).contains(&hash.id()));
    }

    #[test]
    fn only_lower_case_hexadecimal_digits_are_decoded() {
        assert_eq!(decode_hex("00ff1a"), Some(vec![0, 255, 26]));
        assert_eq!(decode_hex(""), Some(Vec::new()));
        for text in ["0", "0g", "FF", " 0", "é"] {
            assert_eq!(decode_hex(text), None, "{text}");
        }
    }
}
