//! Keys that open the API over TCP: one in a file for programs of the user, and one for each page.
//!
//! A page gets its key for a code that stands in the link which opened it, behind `#`, where no server and no log
//! sees it. A code is good once and for a minute, so that one in the browser's history opens nothing.
//!
//! **Invariant:** keys are compared in constant time, are never printed, and there is a bound to how many there are.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use uuid::Uuid;

use crate::daemon::DaemonError;

/// How long a link can be used.
pub(crate) const CODE_LIFE: Duration = Duration::from_mins(1);
/// Codes that wait to be used. The oldest goes.
const MAX_CODES: usize = 16;
/// Pages that are open. The one that was opened first has to be opened anew.
const MAX_PAGES: usize = 64;

/// What a key is made of.
const BYTES: usize = 32;

/// A key: 256 bits of chance, as hexadecimal digits.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub(crate) fn random() -> Result<Self, DaemonError> {
        let mut bytes = [0_u8; BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_unspecified| DaemonError::NoRandomness)?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
        }
        Ok(Self(text))
    }

    /// A key that was written before, if it is one.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = text.trim_ascii_end();
        let is_whole = text.len() == 2 * BYTES && text.iter().all(is_digit);
        is_whole.then(|| Self(String::from_utf8_lossy(text).into_owned()))
    }

    /// The key itself. Named so that every use can be found.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// All keys that fit.
#[derive(Debug)]
pub(crate) struct Keys {
    main: Token,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    codes: VecDeque<Code>,
    pages: VecDeque<Token>,
}

#[derive(Debug)]
struct Code {
    token: Token,
    until: Instant,
    /// The file that holds it, if a browser was given one.
    doorway: Option<Doorway>,
}

impl Keys {
    pub(crate) fn new(main: Token) -> Self {
        Self { main, guests: Mutex::default() }
    }

    #[cfg(test)]
    pub(crate) fn for_test(main: &str) -> Self {
        Self::new(Token(main.to_owned()))
    }

    pub(crate) fn main(&self) -> &Token {
        &self.main
    }

    /// Whether it opens the API.
    pub(crate) fn fits(&self, given: &str) -> bool {
        self.main.is(given) || self.guests().pages.iter().any(|it| it.is(given))
    }

    /// A code for one page.
    pub(crate) fn new_code(&self, now: Instant) -> Result<Token, DaemonError> {
        let code = Token::random()?;
        let mut guests = self.guests();
        let until = now + CODE_LIFE;
        guests.codes.push_back(Code { token: code.clone(), until, doorway: None });
        if guests.codes.len() > MAX_CODES {
            guests.codes.pop_front();
        }
        Ok(code)
    }

    /// Keeps the file with a code as long as the code is good.
    pub(crate) fn keep(&self, code: &Token, doorway: Doorway) {
        let mut guests = self.guests();
        if let Some(it) = guests.codes.iter_mut().find(|it| it.token.is(code.reveal())) {
            it.doorway = Some(doorway);
        }
    }

    /// Forgets codes that are too old.
    pub(crate) fn tidy(&self, now: Instant) {
        self.guests().codes.retain(|it| it.until > now);
    }

    /// A key for a code, which is then used up. `None` if the code is none, or is too old.
    pub(crate) fn exchange(&self, given: &str, now: Instant) -> Result<Option<Token>, DaemonError> {
        let page = Token::random()?;
        let mut guests = self.guests();
        guests.codes.retain(|it| it.until > now);
        let Some(place) = guests.codes.iter().position(|it| it.token.is(given)) else {
            return Ok(None);
        };
        guests.codes.remove(place);
        guests.pages.push_back(page.clone());
        if guests.pages.len() > MAX_PAGES {
            guests.pages.pop_front();
        }
        Ok(Some(page))
    }

    // The lists are sound between statements, so a panic elsewhere cannot have torn them.
    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Pages in files of their owner alone, which lead a browser to the dashboard with the code that opens it.
//
// Every user of a machine can read the command lines of all others, so a code has no place in that of a browser. The
// browser is given the path of such a file instead.
//
// **Invariant:** a file goes with its code: when that is used, when it is too old, and when the daemon ends.

const START: &str = "page-";
const END: &str = ".html";

/// A file with such a page. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Doorway(PathBuf);

impl Doorway {
    /// Writes a page that leads to an address of ours, in a folder that is closed to others.
    pub(crate) fn open(dir: &Path, url: &str) -> io::Result<Self> {
        let path = dir.join(format!("{START}{}{END}", Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let doorway = Self(path);
        file.write_all(page(url).as_bytes())?;
        Ok(doorway)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes what a killed daemon left.
pub(crate) fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|it| it.starts_with(START) && it.ends_with(END)) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, path = %path.display(), "is left behind"),
    }
}

/// The address is ours: a host, a port and hexadecimal digits, which mean nothing in HTML and scripts.
fn page(url: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Toolrack</title>\n<meta http-equiv=\"refresh\" content=\"0;url={url}\">\n\
         <script>location.replace(\"{url}\")</script>\n<p><a href=\"{url}\">Open the dashboard</a></p>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_code_is_good_once_and_for_a_minute() {
        let keys = Keys::new(Token::random().unwrap());
        let now = Instant::now();
        let code = keys.new_code(now).unwrap();
        assert!(keys.exchange("", now).unwrap().is_none());
        assert!(!keys.fits(code.reveal()));
        let page = keys.exchange(code.reveal(), now).unwrap().unwrap();
        assert!(keys.fits(page.reveal()) && keys.fits(keys.main().reveal()));
        assert!(keys.exchange(code.reveal(), now).unwrap().is_none());
        let old = keys.new_code(now).unwrap();
        assert!(keys.exchange(old.reveal(), now + CODE_LIFE).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_with_a_code_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new(Token::random().unwrap());
        let now = Instant::now();
        let open = || {
            let code = keys.new_code(now).unwrap();
            let doorway = Doorway::open(dir.path(), code.reveal()).unwrap();
            let path = doorway.path().to_owned();
            keys.keep(&code, doorway);
            (code, path)
        };
        let ((used, one), (_, two)) = (open(), open());
        assert!(one.exists() && two.exists());
        assert!(keys.exchange(used.reveal(), now).unwrap().is_some());
        assert!(!one.exists() && two.exists());
        keys.tidy(now + CODE_LIFE);
        assert!(!two.exists());
    }

    #[test]
    fn keys_are_long_differ_and_are_not_printed() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.reveal().len(), 64);
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(format!("{one:?}"), "Token(…)");
    }

    #[tokio::test]
    async fn the_first_of_too_many_pages_is_closed() {
        let keys = Keys::new(Token::random().unwrap());
        let open = || {
            let code = keys.new_code(Instant::now()).unwrap();
            keys.exchange(code.reveal(), Instant::now()).unwrap().unwrap()
        };
        let first = open();
        let rest: Vec<Token> = (0..MAX_PAGES).map(|_| open()).collect();
        assert!(!keys.fits(first.reveal()));
        assert!(rest.iter().all(|it| keys.fits(it.reveal())));
    }

    #[test]
    fn a_page_is_private_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/#code=ab";
        let doorway = Doorway::open(dir.path(), url).unwrap();
        let path = doorway.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().matches(url).count(), 3);
        drop(doorway);
        assert!(!path.exists());
        let _left = std::mem::ManuallyDrop::new(Doorway::open(dir.path(), url).unwrap());
        sweep(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
