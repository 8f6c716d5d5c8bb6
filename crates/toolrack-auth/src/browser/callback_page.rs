//! The page that a person sees after logging in, and the little of HTTP that it takes to show it.

use super::LoginOutcome;

/// The whole answer to the browser.
pub(super) fn html_response(status: &str, title: &str, text: &str) -> String {
    let (title, text) = (escape(title), escape(text));
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <body style=\"font-family:sans-serif;margin:15vh auto;max-width:32em\">\
         <h1>{title}</h1><p>{text}</p></body></html>"
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    )
}

/// What the person who has logged in gets to see.
pub(super) fn outcome_page(outcome: &LoginOutcome) -> String {
    match outcome {
        LoginOutcome::Success => html_response("200 OK", "Logged in", "You can close this window."),
        LoginOutcome::Failed(reason) => html_response("200 OK", "Not logged in", reason),
    }
}

/// The query of a request for `path`, or the status that refuses it.
pub(super) fn callback_query<'a>(head: &'a str, path: &str) -> Result<&'a str, &'static str> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (found, query) = target.split_once('?').unwrap_or((target, ""));
    match (method, found == path) {
        (_, false) => Err("404 Not Found"),
        ("GET", true) => Ok(query),
        (_, true) => Err("405 Method Not Allowed"),
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_path_is_answered() {
        let check = |head: &str, expected| {
            assert_eq!(callback_query(head, "/callback"), expected, "{head}")
        };
        check("GET /callback?code=c&state=s HTTP/1.1\r\nHost: x", Ok("code=c&state=s"));
        check("GET /callback HTTP/1.1", Ok(""));
        check("GET /callback/?code=c HTTP/1.1", Err("404 Not Found"));
        check("GET /favicon.ico HTTP/1.1", Err("404 Not Found"));
        check("POST /callback?code=c HTTP/1.1", Err("405 Method Not Allowed"));
        check("", Err("404 Not Found"));
    }

    #[test]
    fn what_somebody_wrote_does_not_become_a_page() {
        let page = outcome_page(&LoginOutcome::Failed("<script>alert(\"x\")</script>".to_owned()));
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("&lt;script&gt;"), "{page}");
    }
}
