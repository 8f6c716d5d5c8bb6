//! A stable digest of what a connection depends on.
//!
//! It names entries of the tool catalogue, remembers verdicts and approvals across restarts, and says
//! whether a changed config needs a new connection. It is taken before anything is resolved, so it holds
//! no secret unless the file does.
//!
//! **Invariant:** two configs have the same fingerprint exactly if everything listed in [`fingerprint`]
//! is the same. Names, time limits and filters are not in it.

use std::collections::HashMap;
use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::server::{EnvValue, McpServerConfig, McpTransport, sorted_names};

/// A digest of what a connection depends on. The same in every run and on every machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Digests how a server is reached and what its process may see and touch.
pub fn fingerprint(config: &McpServerConfig) -> Fingerprint {
    let mut ink = Ink(Sha256::new());
    ink.text("toolrack-config 1");
    match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => {
            ink.text("stdio");
            ink.text(command);
            ink.list(args);
            ink.env(env);
            ink.option(cwd.as_deref());
        }
        McpTransport::Http { url, headers } => {
            ink.text("http");
            ink.text(url);
            ink.map(headers);
        }
        McpTransport::Package { package, env, cwd, headers } => {
            ink.text("package");
            ink.text(package.kind.word());
            ink.text(&package.identifier);
            ink.option(package.version.as_deref());
            ink.list(&package.args);
            ink.option(package.program.as_deref());
            ink.list(&package.runtime_args);
            ink.env(env);
            ink.option(cwd.as_deref());
            ink.map(headers);
        }
    }
    ink.number(u64::from(config.inherit_env));
    ink.number(config.max_message_bytes as u64);
    match &config.sandbox {
        None => ink.number(u64::from(false)),
        Some(sandbox) => {
            ink.number(u64::from(true));
            ink.number(u64::from(sandbox.read.is_some()));
            ink.list(sandbox.read.as_deref().unwrap_or_default());
            ink.list(&sandbox.write);
            ink.number(u64::from(sandbox.net));
        }
    }
    Fingerprint(ink.0.finalize().into())
}

impl Fingerprint {
    /// All of it, as a file name can hold it.
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

/// Writes values so that no two sequences of values look alike: lengths go before contents.
struct Ink(Sha256);

impl Ink {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn option(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn list(&mut self, list: &[String]) {
        self.number(list.len() as u64);
        for text in list {
            self.text(text);
        }
    }

    fn map(&mut self, map: &HashMap<String, String>) {
        self.number(map.len() as u64);
        for name in sorted_names(map) {
            self.text(name);
            self.option(map.get(name).map(String::as_str));
        }
    }

    fn env(&mut self, env: &HashMap<String, EnvValue>) {
        self.number(env.len() as u64);
        for name in sorted_names(env) {
            self.text(name);
            match env.get(name) {
                None => self.text("unset"),
                Some(EnvValue::Text(text)) => {
                    self.text("text");
                    self.text(text);
                }
                Some(EnvValue::Secret { secret_ref, required }) => {
                    self.text("secret");
                    self.text(secret_ref);
                    self.number(u64::from(*required));
                }
            }
        }
    }
}
