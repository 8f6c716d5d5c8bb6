//! Which of the last words of a process say most about why it ended.
//!
//! Launchers say why first, and then where their log is or who they are. What is picked is shown to people, and
//! nothing is decided by it.

/// How npm begins the lines about its own failures, new and old.
const NPM: [&str; 2] = ["npm error", "npm ERR!"];
/// What npm says behind that about the circumstances only.
const NPM_ASIDE: [&str; 8] = ["code", "syscall", "errno", "path", "dest", "signal", "command", "A"];
/// What uv puts before the reason.
const UV_CAUSE: &str = "╰─▶";

/// What a process said that tells most, from its last lines, oldest first. In words for people.
pub fn said(lines: &[String]) -> Option<String> {
    let lines: Vec<&str> = lines.iter().map(|it| it.trim()).collect();
    let last = *lines.iter().rfind(|it| !it.is_empty())?;
    let cause = match last {
        _ if of_npm(last).is_some() => npm_cause(&lines),
        _ if last.starts_with("Node.js v") => node_cause(&lines),
        _ => uv_cause(&lines),
    };
    Some(match cause {
        Some(cause) if cause != last => format!("it said: {cause}"),
        _ => format!("it said last: {last}"),
    })
}

fn of_npm(line: &str) -> Option<&str> {
    NPM.iter().find_map(|it| line.strip_prefix(it))
}

/// A line that quotes what it could not find says more than one with an address.
fn npm_cause(lines: &[&str]) -> Option<String> {
    let tells = |line: &&&str| {
        let mut words = of_npm(line).unwrap_or_default().split_whitespace();
        match (words.next(), words.next()) {
            (Some(first), Some(_)) => !NPM_ASIDE.contains(&first),
            // A label without words, such as `404`.
            (Some(only), None) => !only.starts_with(|it: char| it.is_ascii_digit()),
            (None, _) => false,
        }
    };
    let mut telling = lines.iter().filter(tells);
    let quotes = telling.clone().find(|it| it.matches('\'').count() > 1);
    quotes.or_else(|| telling.next()).map(|it| (*it).to_owned())
}

fn node_cause(lines: &[&str]) -> Option<String> {
    let is_error = |line: &&&str| {
        let name = line.split([':', ' ']).next().unwrap_or_default();
        name.ends_with("Error") && name.len() < line.len()
    };
    lines.iter().rfind(is_error).map(|it| (*it).to_owned())
}

/// The reason goes over several lines.
fn uv_cause(lines: &[&str]) -> Option<String> {
    let at = lines.iter().position(|it| it.starts_with(UV_CAUSE))?;
    let reason = lines.iter().skip(at).take_while(|it| !it.is_empty());
    let text: Vec<&str> = reason.map(|it| it.trim_start_matches(UV_CAUSE).trim()).collect();
    Some(text.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expected: Option<&str>) {
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        assert_eq!(said(&lines).as_deref(), expected);
    }

    #[test]
    fn the_last_line_counts_unless_a_launcher_is_known_to_say_why_before() {
        check("", None);
        check("  \n", None);
        check("starting\nout of order \n\n", Some("it said last: out of order"));
        check("npm error", Some("it said last: npm error"));
        let log = "npm error A complete log of this run can be found in: /h/.npm/_logs/x.log";
        let missing = format!(
            "npm warn old\nnpm error code E404\nnpm error 404 Not Found - GET https://host/@a%2fb\nnpm error 404\n\
             npm error 404  '@a/b@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that\n{log}",
        );
        check(&missing, Some("it said: npm error 404  '@a/b@*' is not in this registry."));
        let version = format!(
            "npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for a@9.\n\
             npm ERR! notarget In most cases you or\n{}",
            log.replace("error", "ERR!"),
        );
        check(&version, Some("it said: npm ERR! notarget No matching version found for a@9."));
        check(&format!("npm error canceled\n{log}"), Some("it said: npm error canceled"));
        check(log, Some(&format!("it said last: {log}")));
        let module = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n\
            Error: Cannot find module '/x.js'\n    at Module._load (node:internal:1)\n  code: 'X'\n}\n\nNode.js v20.1.0";
        check(module, Some("it said: Error: Cannot find module '/x.js'"));
        check("boom\n\nNode.js v20.1.0", Some("it said last: Node.js v20.1.0"));
        let uv = "  × No solution found when resolving tool dependencies:\n  \
            ╰─▶ Because a was not found in the package registry and you\n      require a, it ends.";
        check(
            uv,
            Some(
                "it said: Because a was not found in the package registry and you require a, it ends.",
            ),
        );
    }
}
