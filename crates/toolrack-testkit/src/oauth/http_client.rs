//! A browser without a window: it opens a page, goes where it is sent, and gives back what it sees at last.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const MAX_HOPS: usize = 5;

/// Opens `url` and follows redirects; the answer is the last page, its head included.
pub fn visit(url: &str) -> io::Result<String> {
    let mut url = url.to_owned();
    for _hop in 0..MAX_HOPS {
        let answer = exchange(&url, "GET", "", "")?;
        match location(&answer) {
            Some(next) => next.clone_into(&mut url),
            None => return Ok(answer),
        }
    }
    Err(io::Error::other("too many redirects"))
}

/// Posts a JSON message with a bearer token, and gives back the status and the whole answer.
pub fn post(url: &str, token: Option<&str>, body: &str) -> io::Result<(u16, String)> {
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let answer = exchange(url, "POST", &token, body)?;
    Ok((status(&answer), answer))
}

/// Opens `url` and follows nothing: the status and the whole answer.
pub fn get(url: &str) -> io::Result<(u16, String)> {
    let answer = exchange(url, "GET", "", "")?;
    Ok((status(&answer), answer))
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|nth| nth.parse().ok()).unwrap_or_default()
}

fn exchange(url: &str, method: &str, headers: &str, body: &str) -> io::Result<String> {
    let bare = url.strip_prefix("http://").ok_or_else(|| io::Error::other("not http"))?;
    let cut = bare.find(['/', '?']).unwrap_or(bare.len());
    let (host, target) = bare.split_at(cut);
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn location(answer: &str) -> Option<&str> {
    let head = answer.split("\r\n\r\n").next()?;
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("location:"))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
