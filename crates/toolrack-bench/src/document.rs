//! BENCHMARKS.md as text: a section per subject, each with the command and the date that it comes from.
//!
//! **Invariant:** writing one section leaves the others as they are.

use crate::scenario::Subject;

const OPENING: &str = "\
# Benchmarks

Every client runs in a process of its own, in interleaved rounds, against the same server. A cell is the \
median over the rounds, with the best round in brackets. Where a table names no runtime, clients run on \
tokio's current-thread runtime. Read ratios, not times.
";

const SUBJECTS: [Subject; 5] =
    [Subject::Stdio, Subject::Http, Subject::Manager, Subject::Cli, Subject::Gateway];

/// The section before there were sections begins with this.
const UNTITLED: &str = "Written by `cargo xtask bench stdio";

fn title(subject: Subject) -> &'static str {
    match subject {
        Subject::Stdio => "# Servers on stdio",
        Subject::Http => "# Servers over HTTP",
        Subject::Manager => "# Many servers",
        Subject::Cli => "# The program",
        Subject::Gateway => "# The gateway",
    }
}

/// What a reader of the tables of a subject has to know.
pub(crate) fn legend(subject: Subject) -> &'static str {
    match subject {
        Subject::Stdio => "`limit` is the same bytes over the same pipes with no client at all.",
        Subject::Http => {
            "`limit` is the same bytes over TCP on loopback, blocking, with no client at all; in flight it \
             has a connection for each call. `bare hyper-util client` makes the same requests by that \
             library's pooled client and does not look at the replies. The server speaks both eras: \
             `toolrack` uses 2026-07-28, the peers by their defaults 2025-11-25, and `toolrack, 2025-11-25 \
             session` is ours on a server that knows no better."
        }
        Subject::Manager => {
            "Calls through the manager (`call_tool`, `call_tool_raw`) take turns of some milliseconds with the \
             same calls on the client that the manager has of that server (`client:`): same process, same \
             server, same line, so what is left between them is the manager. Judged is what is work and not \
             luck: the p50 of sequential calls, the rate of calls in flight on two threads, and the CPU time of \
             calls in flight on one, where the rate is also that of the server's core. Memory is the slope \
             between 20 and 120 servers under their guardians. `rmcp` starts the same servers without \
             guardians and asks for no tools. The bad neighbour floods its output with well-formed nonsense, \
             spins a core and reads no more. It takes a core wherever it runs, so it runs twice: outside of the \
             rack with nobody reading it, and in the rack. Judged is the one against the other; against quiet, \
             the scheduler of two cores is measured too. In some runs it lets a call wait for 2 to 4 ms beside a \
             process that spins, in the rack and outside alike, so three rounds are too few for these."
        }
        Subject::Cli => {
            "Every program starts with an empty home, starts the server, makes one call and ends; its time is that \
             from its start until it is gone, its server included. `limit` is the server with no program at all: \
             its start, the handshake and the call over a pipe, and its end once its input has ended, for which \
             server-everything needs a third of a second after it was greeted. A program that waits for the end of \
             its server waits for that, too: from its start until it is gone, a call takes so much longer than the \
             bare server takes to answer. Peers and that server run on the same Node 24. Memory is the highest resident size of the program, and the \
             highest sum of all processes that it has started, seen once a millisecond in a run of its own."
        }
        Subject::Gateway => {
            "Our client calls a server on stdio: itself (`limit`), and through a gateway that it reaches over HTTP or \
             over pipes. The gateway is `toolrack-endpoint`, the gateway of the daemon without its history; each side \
             speaks the newest era that it knows. Memory is the resident size of the gateway's process, without \
             guardians and servers; each session is one of 2025-11-25 that has listed the 1,000 tools and has its \
             stream open."
        }
    }
}

/// The document with this section in place of the one about the same subject.
pub(crate) fn with_section(document: &str, subject: Subject, section: &str) -> String {
    let mut text = OPENING.to_owned();
    for it in SUBJECTS {
        let kept = if it == subject { Some(section) } else { section_of(document, it) };
        if let Some(kept) = kept {
            text.extend(["\n", title(it), "\n\n", kept.trim(), "\n"]);
        }
    }
    text
}

fn section_of(document: &str, subject: Subject) -> Option<&str> {
    let titled = document.split_once(&format!("\n{}\n", title(subject))).map(|(_, rest)| rest);
    let is_divided = SUBJECTS.iter().any(|it| document.contains(&format!("\n{}\n", title(*it))));
    let rest = match (titled, subject) {
        (Some(rest), _) => rest,
        (None, Subject::Stdio) if !is_divided => document.get(document.find(UNTITLED)?..)?,
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
    fn check(before: &str, subject: Subject, section: &str, expected: &str) {
        let after = with_section(before, subject, section);
        let sections = after.strip_prefix(OPENING).unwrap();
        assert_eq!(sections, expected);
        assert_eq!(with_section(&after, subject, section), after, "the same again");
    }

    const BOTH: &str =
        "\n# Servers on stdio\n\nold stdio\n\n## Table\n\n# Servers over HTTP\n\nold http\n";

    #[test]
    fn a_section_takes_the_place_of_its_predecessor() {
        check("", Subject::Http, "new\n", "\n# Servers over HTTP\n\nnew\n");
        check(
            BOTH,
            Subject::Http,
            "new\n",
            "\n# Servers on stdio\n\nold stdio\n\n## Table\n\n# Servers over HTTP\n\nnew\n",
        );
        check(
            BOTH,
            Subject::Stdio,
            "new\n",
            "\n# Servers on stdio\n\nnew\n\n# Servers over HTTP\n\nold http\n",
        );
    }

    #[test]
    fn a_document_from_before_there_were_sections_is_about_stdio() {
        check(
            "# Benchmarks\n\nWritten by `cargo xtask bench stdio --write` on 2026-11-16.\n\n## Table\n",
            Subject::Http,
            "new\n",
            "\n# Servers on stdio\n\nWritten by `cargo xtask bench stdio --write` on 2026-11-16.\n\n\
             ## Table\n\n# Servers over HTTP\n\nnew\n",
        );
    }
}
