//! BENCHMARKS.md as text: a section per medium, each with the command and the date that it comes from.
//!
//! **Invariant:** writing one section leaves the others as they are.

use crate::scenario::Medium;

const OPENING: &str = "\
# Benchmarks

Every client runs in a process of its own, in interleaved rounds, against the same server. A cell is the \
median over the rounds, with the best round in brackets. Where a table names no runtime, clients run on \
tokio's current-thread runtime. Read ratios, not times.
";

const MEDIA: [Medium; 2] = [Medium::Stdio, Medium::Http];

/// The section before there were sections begins with this.
const UNTITLED: &str = "Written by `cargo xtask bench stdio";

fn title(medium: Medium) -> &'static str {
    match medium {
        Medium::Stdio => "# Servers on stdio",
        Medium::Http => "# Servers over HTTP",
    }
}

/// What a reader of the tables of a medium has to know.
pub(crate) fn legend(medium: Medium) -> &'static str {
    match medium {
        Medium::Stdio => "`limit` is the same bytes over the same pipes with no client at all.",
        Medium::Http => {
            "`limit` is the same bytes over TCP on loopback, blocking, with no client at all; in flight it \
             has a connection for each call. `bare hyper-util client` makes the same requests by that \
             library's pooled client and does not look at the replies. The server speaks both eras: \
             `toolrack` uses 2026-07-28, the peers by their defaults 2025-11-25, and `toolrack, 2025-11-25 \
             session` is ours on a server that knows no better."
        }
    }
}

/// The document with this section in place of the one about the same medium.
pub(crate) fn with_section(document: &str, medium: Medium, section: &str) -> String {
    let mut text = OPENING.to_owned();
    for it in MEDIA {
        let kept = if it == medium { Some(section) } else { section_of(document, it) };
        if let Some(kept) = kept {
            text.extend(["\n", title(it), "\n\n", kept.trim(), "\n"]);
        }
    }
    text
}

fn section_of(document: &str, medium: Medium) -> Option<&str> {
    let titled = document.split_once(&format!("\n{}\n", title(medium))).map(|(_, rest)| rest);
    let is_divided = MEDIA.iter().any(|it| document.contains(&format!("\n{}\n", title(*it))));
    let rest = match (titled, medium) {
        (Some(rest), _) => rest,
        (None, Medium::Stdio) if !is_divided => document.get(document.find(UNTITLED)?..)?,
        (None, _) => return None,
    };
    // Titles of tables are one level below.
    let end = rest.find("\n# ").unwrap_or(rest.len());
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, medium: Medium, section: &str, expected: &str) {
        let after = with_section(before, medium, section);
        let sections = after.strip_prefix(OPENING).unwrap();
        assert_eq!(sections, expected);
        assert_eq!(with_section(&after, medium, section), after, "the same again");
    }

    const BOTH: &str =
        "\n# Servers on stdio\n\nold stdio\n\n## Table\n\n# Servers over HTTP\n\nold http\n";

    #[test]
    fn a_section_takes_the_place_of_its_predecessor() {
        check("", Medium::Http, "new\n", "\n# Servers over HTTP\n\nnew\n");
        check(
            BOTH,
            Medium::Http,
            "new\n",
            "\n# Servers on stdio\n\nold stdio\n\n## Table\n\n# Servers over HTTP\n\nnew\n",
        );
        check(
            BOTH,
            Medium::Stdio,
            "new\n",
            "\n# Servers on stdio\n\nnew\n\n# Servers over HTTP\n\nold http\n",
        );
    }

    #[test]
    fn a_document_from_before_there_were_sections_is_about_stdio() {
        check(
            "# Benchmarks\n\nWritten by `cargo xtask bench stdio --write` on 2026-11-16.\n\n## Table\n",
            Medium::Http,
            "new\n",
            "\n# Servers on stdio\n\nWritten by `cargo xtask bench stdio --write` on 2026-11-16.\n\n\
             ## Table\n\n# Servers over HTTP\n\nnew\n",
        );
    }
}
