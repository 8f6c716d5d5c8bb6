//! Keys that open the API over TCP: one in a file for programs of the user, and one for each page.
//!
//! A page gets its key for a code that stands in the link which opened it, behind `#`, where no server and no log
//! sees it. A code is good once and for a minute, so that one in the browser's history opens nothing.
//!
//! **Invariant:** keys are compared in constant time, are never printed, and there is a bound to how many there are.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use crate::error::DaemonError;
use crate::login_file::Doorway;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
