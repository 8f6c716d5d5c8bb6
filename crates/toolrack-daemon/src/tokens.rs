//! Browser tokens, one-time login codes and the login file for browsers.
//!
//! A browser tab gets its own token in exchange for a one-time code. Tokens are in memory only and end with the daemon,
//! so a token that a page sends to another program on the same port later is useless.
//! The code stands in the URL fragment, which browsers do not send to servers, and is valid for 60 seconds, so that a
//! code in the browser's history is useless.
//!
//! On most systems every user can read the command lines of all processes, so the code must not be an argument of the
//! browser. The browser opens a private HTML file ([`LoginFile`]) that redirects to the dashboard instead.
//!
//! **Invariant:** tokens are compared in constant time, are never printed, and their number is bounded.
//!
//! **Invariant:** a login file is removed together with its code: when it is used, when it expires, and at shutdown.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use toolrack_platform::private_options;
use uuid::Uuid;

use crate::daemon::DaemonError;
use crate::keys::{decode_hex, encode_hex};

/// Lifetime of a login code.
pub(crate) const CODE_TTL: Duration = Duration::from_mins(1);
/// Maximum number of unused codes. The oldest is dropped.
const MAX_CODES: usize = 16;
/// Maximum number of browser tokens. The oldest is revoked.
const MAX_BROWSER_TOKENS: usize = 64;
/// Length of a token in bytes.
const TOKEN_BYTES: usize = 32;
const LOGIN_FILE_PREFIX: &str = "page-";
const LOGIN_FILE_SUFFIX: &str = ".html";

/// A token or code: 256 random bits as lower-case hexadecimal digits.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn random() -> Result<Self, DaemonError> {
        let mut bytes = [0_u8; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_unspecified| DaemonError::NoRandomness)?;
        Ok(Self(encode_hex(&bytes)))
    }

    /// Parses the token file of an earlier version. `None` if it is not exactly one token.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        let bytes = decode_hex(text)?;
        (bytes.len() == TOKEN_BYTES).then(|| Self(text.to_owned()))
    }

    /// The secret value. The name makes every use easy to find.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    fn matches(&self, candidate: &str) -> bool {
        self.0.as_bytes().ct_eq(candidate.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// All valid browser tokens and login codes.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    codes: Mutex<VecDeque<LoginCode>>,
    browsers: Mutex<VecDeque<Token>>,
}

#[derive(Debug)]
struct LoginCode {
    code: Token,
    expires_at: Instant,
    /// The file that contains the code, if one was written.
    login_file: Option<LoginFile>,
}

impl Tokens {
    #[cfg(test)]
    pub(crate) fn for_test(browser: &str) -> Self {
        let browsers = VecDeque::from([Token(browser.to_owned())]);
        Self { browsers: Mutex::new(browsers), ..Self::default() }
    }

    /// Whether it is the token of a browser, which may use everything.
    pub(crate) fn is_valid(&self, candidate: &str) -> bool {
        self.browsers.lock().iter().any(|token| token.matches(candidate))
    }

    /// Issues a login code.
    pub(crate) fn new_code(&self, now: Instant) -> Result<Token, DaemonError> {
        let code = Token::random()?;
        let mut codes = self.codes.lock();
        let expires_at = now + CODE_TTL;
        codes.push_back(LoginCode { code: code.clone(), expires_at, login_file: None });
        // The oldest goes: only its own browser tab loses its login.
        if codes.len() > MAX_CODES {
            codes.pop_front();
        }
        Ok(code)
    }

    /// Ties a login file to its code. If the code is gone already, the file is removed at once.
    pub(crate) fn attach_login_file(&self, code: &Token, login_file: LoginFile) {
        let mut codes = self.codes.lock();
        if let Some(entry) = codes.iter_mut().find(|entry| entry.code.matches(code.reveal())) {
            entry.login_file = Some(login_file);
        }
    }

    /// Removes expired codes and their login files.
    pub(crate) fn remove_expired(&self, now: Instant) {
        self.codes.lock().retain(|entry| entry.expires_at > now);
    }

    /// Exchanges a code for a browser token. `None` if the code is unknown, used or expired.
    pub(crate) fn exchange(&self, code: &str, now: Instant) -> Result<Option<Token>, DaemonError> {
        // Before the lock and before the code is consumed: a failed random generator must not use
        // up the code.
        let token = Token::random()?;
        let mut codes = self.codes.lock();
        codes.retain(|entry| entry.expires_at > now);
        let Some(index) = codes.iter().position(|entry| entry.code.matches(code)) else {
            return Ok(None);
        };
        // Removed before the token is handed out: a code works once, even for two requests at
        // the same time.
        codes.remove(index);
        let mut browsers = self.browsers.lock();
        browsers.push_back(token.clone());
        if browsers.len() > MAX_BROWSER_TOKENS {
            browsers.pop_front();
        }
        Ok(Some(token))
    }
}

/// A private HTML file that redirects a browser to the dashboard with a login code. Removed on drop.
#[derive(Debug)]
pub(crate) struct LoginFile(pub(crate) PathBuf);

impl LoginFile {
    /// Writes a file that redirects to `url`, in a directory with mode 0700.
    pub(crate) fn create(dir: &Path, url: &str) -> io::Result<Self> {
        let name = format!("{LOGIN_FILE_PREFIX}{}{LOGIN_FILE_SUFFIX}", Uuid::new_v4().simple());
        let path = dir.join(name);
        let mut file = private_options().write(true).create_new(true).open(&path)?;
        // Before the write: if that fails, the drop removes the file.
        let login_file = Self(path);
        // The URL needs no escaping: it consists of a loopback host, a port and hexadecimal digits.
        write!(
            file,
            "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>Toolrack</title>\n<meta http-equiv=\"refresh\" content=\"0;url={url}\">\n\
             <script>location.replace(\"{url}\")</script>\n<p><a href=\"{url}\">Open the dashboard</a></p>\n"
        )?;
        Ok(login_file)
    }
}

impl Drop for LoginFile {
    fn drop(&mut self) {
        remove_file(&self.0);
    }
}

/// Removes the login files of a killed daemon.
pub(crate) fn remove_stale_login_files(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_login_file =
            |name: &str| name.starts_with(LOGIN_FILE_PREFIX) && name.ends_with(LOGIN_FILE_SUFFIX);
        if name.to_str().is_some_and(is_login_file) {
            remove_file(&entry.path());
        }
    }
}

/// Removes a file of the run directory, if it exists.
pub(crate) fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot remove a file of the run directory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test(start_paused = true)]
    async fn login_code_is_single_use_and_expires() {
        let tokens = Tokens::default();
        let now = Instant::now();
        let code = tokens.new_code(now).unwrap();
        assert!(tokens.exchange("", now).unwrap().is_none());
        assert!(!tokens.is_valid(code.reveal()));
        let token = tokens.exchange(code.reveal(), now).unwrap().unwrap();
        assert!(tokens.is_valid(token.reveal()));
        assert!(tokens.exchange(code.reveal(), now).unwrap().is_none());
        let old = tokens.new_code(now).unwrap();
        assert!(tokens.exchange(old.reveal(), now + CODE_TTL).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn login_file_is_removed_with_its_code() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::default();
        let now = Instant::now();
        let create = || {
            let code = tokens.new_code(now).unwrap();
            let login_file = LoginFile::create(dir.path(), code.reveal()).unwrap();
            let path = login_file.0.clone();
            tokens.attach_login_file(&code, login_file);
            (code, path)
        };
        let ((used, one), (_, two)) = (create(), create());
        assert!(one.exists() && two.exists());
        assert!(tokens.exchange(used.reveal(), now).unwrap().is_some());
        assert!(!one.exists() && two.exists());
        tokens.remove_expired(now + CODE_TTL);
        assert!(!two.exists());
    }

    #[test]
    fn tokens_are_random_and_not_printed() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.reveal().len(), 64);
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(format!("{one:?}"), "Token(…)");
    }

    #[tokio::test]
    async fn oldest_browser_token_is_revoked_at_the_limit() {
        let tokens = Tokens::default();
        let login = || {
            let code = tokens.new_code(Instant::now()).unwrap();
            tokens.exchange(code.reveal(), Instant::now()).unwrap().unwrap()
        };
        let first = login();
        let rest: Vec<Token> = (0..MAX_BROWSER_TOKENS).map(|_| login()).collect();
        assert!(!tokens.is_valid(first.reveal()));
        assert!(rest.iter().all(|token| tokens.is_valid(token.reveal())));
    }

    #[test]
    fn login_file_is_private_and_removed_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/#code=ab";
        let login_file = LoginFile::create(dir.path(), url).unwrap();
        let path = login_file.0.clone();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().matches(url).count(), 3);
        drop(login_file);
        assert!(!path.exists());
        let _leaked = std::mem::ManuallyDrop::new(LoginFile::create(dir.path(), url).unwrap());
        remove_stale_login_files(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
