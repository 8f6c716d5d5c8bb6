//! Diff of two server sets, and the fingerprint of a server config.
//!
//! **Invariant:** every server is in exactly one of `connect`, `disconnect`, `reconnect`
//! and `keep`. Equal fingerprints mean that the same server is reached in the same way.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::server::{EnvValue, McpServerConfig, McpTransport};

/// Actions per server name. In the order of the new set, then of the old one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigDiff {
    /// New or newly enabled.
    pub connect: Vec<String>,
    /// Removed or disabled.
    pub disconnect: Vec<String>,
    /// Reached in another way than before.
    pub reconnect: Vec<String>,
    /// Unchanged, connected or not.
    pub keep: Vec<String>,
    /// The part of `keep` with other settings, such as `timeout` or `deny`.
    pub adjust: Vec<String>,
}

impl ConfigDiff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Self { connect, disconnect, reconnect, keep: _, adjust } = self;
        [connect, disconnect, reconnect, adjust].iter().all(|value| value.is_empty())
    }
}

/// Compares two server sets. The last of duplicate names counts.
pub fn diff(old: &[McpServerConfig], new: &[McpServerConfig]) -> ConfigDiff {
    let mut plan = ConfigDiff::default();
    let (before, after) = (by_name(old), by_name(new));
    for config in new.iter().filter(|config| is_last(&after, config)) {
        classify(&mut plan, &config.name, before.get(&*config.name).copied(), Some(config));
    }
    for config in old.iter().filter(|config| is_last(&before, config)) {
        if !after.contains_key(&*config.name) {
            classify(&mut plan, &config.name, Some(config), None);
        }
    }
    plan
}

fn classify(
    plan: &mut ConfigDiff,
    name: &str,
    old: Option<&McpServerConfig>,
    new: Option<&McpServerConfig>,
) {
    // A disabled server has no connection, so it counts as absent.
    let was = old.filter(|old| old.enabled);
    let will = new.filter(|new| new.enabled);
    let list = match (was, will) {
        (None, Some(_)) => &mut plan.connect,
        (Some(_), None) => &mut plan.disconnect,
        (Some(was), Some(will)) if fingerprint(was) != fingerprint(will) => &mut plan.reconnect,
        (None, None) | (Some(_), Some(_)) => {
            if old != new {
                plan.adjust.push(name.to_owned());
            }
            &mut plan.keep
        }
    };
    list.push(name.to_owned());
}

fn by_name(configs: &[McpServerConfig]) -> HashMap<&str, &McpServerConfig> {
    configs.iter().map(|config| (config.name.as_str(), config)).collect()
}

/// Whether no later config has the same name.
fn is_last(by_name: &HashMap<&str, &McpServerConfig>, config: &McpServerConfig) -> bool {
    by_name.get(&*config.name).is_some_and(|last| std::ptr::eq(*last, config))
}

/// Digest of everything that a connection depends on. Stable across runs and machines. Computed before
/// interpolation, so it contains no secret unless the file does. Names, timeouts and filters are not part of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Computes the fingerprint of transport, environment and sandbox.
pub fn fingerprint(config: &McpServerConfig) -> Fingerprint {
    let mut hasher = FieldHasher(Sha256::new());
    // A version, so that a change of the scheme cannot produce an old fingerprint by accident.
    hasher.text("toolrack-config 1");
    match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => {
            hasher.text("stdio");
            hasher.text(command);
            hasher.list(args);
            hasher.env(env);
            hasher.option(cwd.as_deref());
        }
        McpTransport::Http { url, headers } => {
            hasher.text("http");
            hasher.text(url);
            hasher.headers(headers);
        }
        McpTransport::Package { package, env, cwd, headers } => {
            hasher.text("package");
            hasher.text(package.kind.as_str());
            hasher.text(&package.identifier);
            hasher.option(package.version.as_deref());
            hasher.list(&package.args);
            hasher.option(package.program.as_deref());
            hasher.option(package.runtime_hint.as_deref());
            hasher.list(&package.runtime_args);
            hasher.env(env);
            hasher.option(cwd.as_deref());
            hasher.headers(headers);
        }
    }
    hasher.number(u64::from(config.inherit_env));
    hasher.number(config.max_message_bytes as u64);
    // Only if it is set, so that other configs keep their fingerprint.
    if let Some(bytes) = config.max_list_bytes {
        hasher.text("max_list_bytes");
        hasher.number(bytes as u64);
    }
    match &config.sandbox {
        None => hasher.number(u64::from(false)),
        Some(sandbox) => {
            hasher.number(u64::from(true));
            hasher.number(u64::from(sandbox.read.is_some()));
            hasher.list(sandbox.read.as_deref().unwrap_or_default());
            hasher.list(&sandbox.write);
            hasher.number(u64::from(sandbox.net));
        }
    }
    Fingerprint(hasher.0.finalize().into())
}

impl Fingerprint {
    /// Hexadecimal form, usable as a file name.
    pub fn to_hex(self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _never = write!(hex, "{byte:02x}");
            hex
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.to_hex().split_at(12).0)
    }
}

/// Hashes values with length prefixes, so that different sequences never collide.
struct FieldHasher(Sha256);

impl FieldHasher {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn option(&mut self, text: Option<&str>) {
        // An unset value and an empty text are different.
        self.number(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn list(&mut self, list: &[String]) {
        self.number(list.len() as u64);
        for text in list {
            self.text(text);
        }
    }

    /// In the order of names, because that of a `HashMap` changes from run to run.
    fn map<V>(&mut self, map: &HashMap<String, V>, mut value: impl FnMut(&mut Self, &V)) {
        self.number(map.len() as u64);
        for (name, each) in BTreeMap::from_iter(map) {
            self.text(name);
            value(self, each);
        }
    }

    fn headers(&mut self, headers: &HashMap<String, String>) {
        self.map(headers, |hasher, text| hasher.option(Some(text)));
    }

    fn env(&mut self, env: &HashMap<String, EnvValue>) {
        self.map(env, |hasher, value| match value {
            EnvValue::Text(text) => {
                hasher.text("text");
                hasher.text(text);
            }
            EnvValue::Secret { secret_ref, required } => {
                hasher.text("secret");
                hasher.text(secret_ref);
                hasher.number(u64::from(*required));
            }
        });
    }
}
