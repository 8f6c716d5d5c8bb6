//! Abuses of a hostile server: the fixed ones, and a grammar from which a seed draws combinations.
//!
//! **Invariant:** the same seed and number give the same abuse, and every abuse is a command line of the scripted
//! server, so that a failure can be replayed by hand.

use crate::random::Random;

/// How the hostile server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    Stdio,
    Http,
}

/// One abuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Abuse {
    pub(crate) connection: Connection,
    pub(crate) plan: String,
    /// Whether every run plays it.
    pub(crate) is_fixed: bool,
    /// Further arguments of the scripted server.
    pub(crate) options: Vec<&'static str>,
}

/// Abuses of every run: each was once a defect. Lists of 300 KiB entries on pages without an end, for every kind of
/// list; stderr without a newline; and tool names near which an unknown name could be searched.
const FIXED: [(&str, &str); 6] = [
    ("", "--tools 1500 --schema-bytes 300KiB --page-size 10"),
    ("resources=member(resources,large,10)+cursor(endless)", ""),
    ("templates=member(resourceTemplates,large,10)+cursor(endless)", ""),
    ("prompts=member(prompts,large,10)+cursor(endless)", ""),
    ("start=stderr(20MiB,raw)", ""),
    ("", "--tools 9900"),
];

/// Abuses over any connection. `{when}`, `{often}`, `{size}`, `{many}`, `{deep}` and `{list}` are drawn.
const ANYWHERE: &[&str] = &[
    // Floods.
    "{when}=notify({often})",
    "{when}=ping({often})",
    "{when}=nonsense({often})",
    "{when}=changed({often})",
    "{when}=send(progress,{often})",
    "{when}=send(resources,{often})",
    "{when}=send(prompts,{often})",
    "{when}=send(updated,{often})",
    "{when}=send(cancelled,{often})",
    "{when}=send(task,{often})",
    "{when}=send(completed,{often})",
    "{when}=send(unknown,{often})",
    "{when}=send(roots,{often})",
    "{when}=send(sampling,{often})",
    "{when}=send(elicitation,{often})",
    "{when}=send(url,{often})",
    "{when}=garbage(text,{often})",
    "{when}=garbage(utf8,{often})",
    "{when}=garbage(json,{often})",
    // Lists.
    "{list},tiny,{many})",
    "{list},same,{many})",
    "{list},names,2000)",
    "{list},bidi,{many})",
    "{list},bad,{many})",
    "{list},nested,100)",
    "{list},large,100)",
    "{list},tiny,100)+cursor(endless)",
    "{list},names,100)+cursor(endless)",
    "{list},large,10)+cursor(endless)",
    "{list},bad,1000)+cursor(endless)",
    "{list},tiny,10)+cursor(same)",
    "{list},tiny,10)+cursor(empty)",
    "{list},arrays,{deep})",
    "{list},text,{size})",
    "list=member(nextCursor,text,{size})",
    "list=member(ttlMs,number,18446744073709551615)",
    "list=member(ttlMs,negative,1)+changed(100)",
    // Results.
    "call=huge({size},front)",
    "call=huge({size},back)",
    "call=huge(33554433,front)",
    "call=huge({size})",
    "call=huge({size},open)",
    "call=member(content,arrays,{deep})",
    "call=member(content,objects,{deep})",
    "call=member(content,blocks,{many})",
    "call=member(content,surrogates,100000)",
    "call=member(content,nul,100000)",
    "call=member(content,utf8,100000)",
    "call=member(structuredContent,objects,{deep})",
    "call=member(structuredContent,arrays,{deep})",
    "call=member(_meta,text,{size})",
    "call=member(resultType,text,{size})",
    "call=shape(both)",
    "call=shape(neither)",
    "call=shape(number)",
    "call=shape(alien)",
    "call=id(unknown)+dup",
    "call=id(null)",
    "call=id(float)+dup",
    "call=frame(bytewise)",
    "call=frame(batch)+dup",
    "call=hang",
    // Protocol.
    "initialize=member(instructions,text,{size}); discover=member(instructions,text,{size})",
    "initialize=member(capabilities,objects,{deep}); discover=member(capabilities,objects,{deep})",
    "initialize=member(capabilities,text,{size}); discover=member(capabilities,text,{size})",
    "initialize=member(serverInfo,arrays,{deep}); discover=member(serverInfo,arrays,{deep})",
    "initialize=member(protocolVersion,text,{size}); discover=member(supportedVersions,text,{size})",
    "initialize=version(1999-01-01); discover=version(1999-01-01)",
    "initialize=shape(number); discover=shape(number)",
    "initialize=shape(null); discover=shape(both)",
    "initialize=huge({size},open); discover=huge({size},open)",
    "initialize=dup; discover=dup; list=dup; call=dup",
    "unknown=hang",
];

/// Abuses by a process.
const BY_PROCESS: &[&str] = &[
    "{when}=stderr({size})",
    "{when}=stderr({size},raw)",
    "start=stderr(1GiB)",
    "start=children(30)",
    "start=escape(10); ignore=term,eof",
    "ignore=term,eof; call=children(20)",
    "{when}=close(stdout)",
    "{when}=close(stdin)",
    "{when}=close(stderr)",
    "{when}=exit(1)",
    "start=exit(1)",
    "initialized=exit(0)",
    "{when}=kill(SEGV)",
    "{when}=kill(STOP)",
    "{when}=leak(0)",
    "call=half(1)",
    "list=half(1)",
    "{when}=stopread",
    "call=stopread+hang",
    "tree=3; ignore=term,eof",
    "start=prompt",
    "start=escape(3,untagged); {when}=stopparent",
    "start=escape(3); {when}=stopparent; ignore=term,eof",
];

/// Abuses by an HTTP response, at all requests or after the handshake.
const OVER_HTTP: &[&str] = &[
    "http{from}=reply(headers,{size})",
    "http{from}=reply(header,{size})",
    "http{from}=reply(cookie,{size})",
    "http{from}=reply(session,{size})",
    "http{from}=reply(challenge,{size})",
    "http{from}=reply(redirect,1KiB)",
    "http{from}=reply(redirect,1MiB)",
    "http{from}=reply(gzip,1GiB)",
    "http{from}=reply(event,{size})",
    "http{from}=reply(retry)",
    "http{from}=reply(drop)",
    "http{from}=reply(slow)",
    "http{from}=reply(junk,{size})",
    "http{from}=status(503)",
    "http{from}=status(404)",
    "http{from}=status(401)",
    "http{from}=status(202)",
];

const WHEN: &[&str] = &["initialize", "discover", "initialized", "list", "call", "call", "message"];
const OFTEN: &[&str] = &["1000", "100000", "forever"];
const SIZE: &[&str] = &["64KiB", "1MiB", "20MiB", "33554432", "256MiB"];
const MANY: &[&str] = &["1000", "20000", "300000"];
const DEEP: &[&str] = &["120", "10000", "1000000"];
const LIST: &[&str] = &[
    "list=member(tools",
    "resources=member(resources",
    "templates=member(resourceTemplates",
    "prompts=member(prompts",
];
const FROM: &[&str] = &["", ":3-", ":every=3"];

const REVISIONS: &[&str] = &["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28", "dual"];
const SHAPES: &[&str] = &["session", "stateless", "sse", "dual"];
const REPLIES: &[&str] = &["json", "sse", "auto"];

impl Abuse {
    pub(crate) fn fixed() -> Vec<Self> {
        let abuse = |(plan, options): (&str, &'static str)| Self {
            connection: Connection::Stdio,
            plan: plan.to_owned(),
            is_fixed: true,
            options: options.split_whitespace().collect(),
        };
        FIXED.map(abuse).to_vec()
    }

    /// One to three abuses at the same time.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let connection = if random.below(4) == 0 { Connection::Http } else { Connection::Stdio };
        let own = match connection {
            Connection::Stdio => BY_PROCESS,
            Connection::Http => OVER_HTTP,
        };
        let n_parts = 1 + random.below(3);
        let parts: Vec<String> = (0..n_parts)
            .map(|_| {
                let table = if random.below(3) == 0 { own } else { ANYWHERE };
                fill(choose(random, table), random)
            })
            .collect();
        let options = match connection {
            Connection::Stdio => vec!["--revision", choose(random, REVISIONS)],
            Connection::Http => {
                vec!["--shape", choose(random, SHAPES), "--reply", choose(random, REPLIES)]
            }
        };
        Self { connection, plan: parts.join("; "), is_fixed: false, options }
    }

    /// Arguments of the scripted server, without its address.
    pub(crate) fn args(&self, lifetime: &str) -> Vec<String> {
        let args = ["--lifetime", lifetime, "--plan", &self.plan];
        args.iter().chain(&self.options).map(|word| (*word).to_owned()).collect()
    }
}

impl std::fmt::Display for Abuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let http = if self.connection == Connection::Http { " --http 127.0.0.1:0" } else { "" };
        let options = self.options.join(" ");
        write!(f, "scripted-server{http} {options} --plan \"{}\"", self.plan)
    }
}

fn choose(random: &mut Random, words: &[&'static str]) -> &'static str {
    let index = usize::try_from(random.below(words.len() as u64)).unwrap_or_default();
    words.get(index).copied().unwrap_or_default()
}

fn fill(template: &str, random: &mut Random) -> String {
    let words = [
        ("{when}", WHEN),
        ("{often}", OFTEN),
        ("{size}", SIZE),
        ("{many}", MANY),
        ("{deep}", DEEP),
        ("{list}", LIST),
        ("{from}", FROM),
    ];
    words.iter().fold(template.to_owned(), |text, (name, words)| {
        if text.contains(name) { text.replace(name, choose(random, words)) } else { text }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::process::Stdio;

    use toolrack_testkit::harness::command;
    use toolrack_testkit::program;

    use super::*;

    #[test]
    fn same_seed_draws_the_same_abuse() {
        let draw = |seed, number| Abuse::draw(&mut Random::new(seed, number));
        assert_eq!(draw(1, 7), draw(1, 7));
        let drawn: HashSet<String> = (0..200).map(|number| draw(1, number).to_string()).collect();
        assert!(drawn.len() > 190, "{}", drawn.len());
    }

    /// The scripted server parses its command line before it reads anything.
    #[test]
    fn scripted_server_accepts_every_abuse() {
        let tables = [ANYWHERE, BY_PROCESS, OVER_HTTP];
        let mut random = Random::new(1, 1);
        let filled = tables.into_iter().flatten().map(|template| fill(template, &mut random));
        let parts: Vec<String> = filled.collect();
        assert!(parts.iter().all(|part| !part.contains(['{', '}'])), "{parts:?}");
        let drawn = (0..20).map(|number| Abuse::draw(&mut Random::new(2, number)).plan);
        let fixed = Abuse::fixed().into_iter().map(|abuse| abuse.plan);
        for plan in parts.into_iter().chain(drawn).chain(fixed) {
            // `--help` at the end: the options before it are parsed, and nothing runs.
            let mut server = command(program("scripted-server"));
            server.args(["--plan", &plan, "--help"]).stdin(Stdio::null());
            let output = server.output().expect("it runs");
            assert!(output.status.success(), "{plan}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
