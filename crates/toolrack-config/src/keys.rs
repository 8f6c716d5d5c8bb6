//! Every key of our own file, in one table: the parser, the JSON Schema and docs/config.md are made of it.
//!
//! **Invariant:** a key that is not here is not read, and one that is here is described.

/// One key and what it takes.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What holds if it is left out, for people.
    pub(crate) default: &'static str,
    /// What it is for, in one sentence.
    pub(crate) doc: &'static str,
}

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Text in which `${…}` is filled in.
    Template,
    /// Text that is taken as it is and not empty.
    Text,
    Flag,
    /// A time with its unit.
    Time,
    /// The same, or `never`.
    TimeOrNever,
    /// A number above zero.
    Count,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A list of templates.
    Templates,
    /// A list of texts that are not empty.
    Texts,
    /// Names with templates.
    TemplateMap,
    /// Names with templates or secrets.
    EnvMap,
    Table(&'static Scope),
    Tables(&'static Scope),
    /// A bare number of seconds, or of milliseconds; only in files of other tools.
    Seconds,
    Millis,
    /// Names with texts, numbers or booleans; only in files of other tools.
    ScalarMap,
    /// Known, and without meaning for us; only in files of other tools.
    Ignored,
}

/// A table: which keys it may have, and what is said about others.
#[derive(Debug)]
pub(crate) struct Scope {
    /// What it is called in the schema and in the docs.
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [Key],
    pub(crate) strangers: Strangers,
}

/// What is said about a key that a table does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// The table is ours: a warning.
    Warn,
    /// The table is shared with other programs, such as Spacebot: a warning only if the key looks like
    /// one of ours, misspelt.
    WarnIfNear,
    /// The file is another tool's: a note that the key is not taken over.
    NotTakenOver,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, default, doc }
}

/// The words for `transport`. The last two mean the same as `http`.
pub(crate) const TRANSPORTS: &[&str] = &["stdio", "http", "streamable-http", "sse"];

pub(crate) static FILE: Scope = Scope {
    title: "file",
    strangers: Strangers::WarnIfNear,
    keys: &[
        key("$schema", Kind::Text, "–", "Where the JSON Schema of this file is, for editors."),
        key(
            "defaults",
            Kind::Table(&DEFAULTS),
            "–",
            "What every agent has, and what holds for every server.",
        ),
        key("agents", Kind::Tables(&AGENT), "none", "Agents with servers of their own."),
    ],
};

pub(crate) static DEFAULTS: Scope = Scope {
    title: "defaults",
    strangers: Strangers::WarnIfNear,
    keys: &[
        key(
            "timeout",
            Kind::Time,
            "120s",
            "How long one call waits without a sign of work. Progress starts it again.",
        ),
        key(
            "max_timeout",
            Kind::Time,
            "10m",
            "How long one call may take in all. Never less than `timeout`.",
        ),
        key(
            "startup_timeout",
            Kind::Time,
            "30s",
            "How long a server may take from its start to its first list of tools. A program that may have to fetch the server first, such as `npx` or `uvx`, has 2 minutes, unless this is less than 30 s.",
        ),
        key(
            "install_timeout",
            Kind::Time,
            "10m",
            "How long a package may take to be installed before its server starts.",
        ),
        key(
            "start",
            Kind::Word(&["eager", "lazy"]),
            "eager",
            "`lazy` starts a server with its first call; its tools come from the catalogue.",
        ),
        key(
            "idle",
            Kind::TimeOrNever,
            "never",
            "How long a server may be unused before it is stopped. Its tools stay listed.",
        ),
        key(
            "max_output_bytes",
            Kind::Count,
            "50000",
            "The text that an agent gets of a longer result is cut, and says so. `toolrack call`, the gateway and the HTTP API give all of it.",
        ),
        key(
            "max_message_bytes",
            Kind::Count,
            "33554432",
            "A longer message of a server fails the call it answers.",
        ),
        key(
            "inherit_env",
            Kind::Flag,
            "false",
            "Gives child processes our whole environment instead of a short list.",
        ),
        key(
            "pin",
            Kind::Flag,
            "false",
            "Withholds a tool whose definition has changed until the change is approved.",
        ),
        key(
            "name_separator",
            Kind::Text,
            "_",
            "Stands between server and tool in public names. One to four of `A-Z a-z 0-9 _ -`.",
        ),
        key(
            "name_limit",
            Kind::Count,
            "64",
            "Longer public names are cut and get a hash. From 24 to 256.",
        ),
        key("mcp", Kind::Tables(&SERVER), "none", "Servers that every agent has."),
    ],
};

pub(crate) static AGENT: Scope = Scope {
    title: "agents",
    strangers: Strangers::WarnIfNear,
    keys: &[
        key("id", Kind::Text, "required", "What the agent is called."),
        key(
            "mcp",
            Kind::Tables(&SERVER),
            "none",
            "Servers beside the defaults. One with the name of a default takes its place.",
        ),
    ],
};

pub(crate) static SERVER: Scope = Scope {
    title: "mcp",
    strangers: Strangers::Warn,
    keys: &[
        key(
            "name",
            Kind::Text,
            "required",
            "What people and agents call the server. Unique within its list.",
        ),
        key(
            "id",
            Kind::Text,
            "assigned",
            "The lasting identity of the entry, a UUID. Written by `toolrack`, not by hand.",
        ),
        key(
            "enabled",
            Kind::Flag,
            "true",
            "A server that is not enabled is listed and never connected.",
        ),
        key(
            "transport",
            Kind::Word(TRANSPORTS),
            "as given",
            "`stdio` or `http`. `streamable-http` and `sse` mean `http`: what a server speaks is found out. May be left out.",
        ),
        key(
            "command",
            Kind::Template,
            "–",
            "The program of a `stdio` server: a name on `PATH`, or a path, where `~/` in front is the home folder. No shell reads it.",
        ),
        key("args", Kind::Templates, "[]", "Its arguments, each as it is to arrive."),
        key(
            "env",
            Kind::EnvMap,
            "{}",
            "Variables for the process: text, or `{ secret_ref = \"name\", required = true }`.",
        ),
        key(
            "cwd",
            Kind::Template,
            "ours",
            "The folder in which the process runs; `~/` in front is the home folder.",
        ),
        key("url", Kind::Template, "–", "The endpoint of an `http` server."),
        key("headers", Kind::TemplateMap, "{}", "Sent with every request to the endpoint."),
        key(
            "package",
            Kind::Table(&PACKAGE),
            "–",
            "A published package instead of `command` or `url`.",
        ),
        key(
            "source",
            Kind::Table(&SOURCE),
            "a person",
            "Who told of the server. Written by `toolrack`; does not change how it is run.",
        ),
        key("timeout", Kind::Time, "from defaults", "As in `[defaults]`."),
        key("max_timeout", Kind::Time, "from defaults", "As in `[defaults]`."),
        key("startup_timeout", Kind::Time, "from defaults", "As in `[defaults]`."),
        key("install_timeout", Kind::Time, "from defaults", "As in `[defaults]`."),
        key("start", Kind::Word(&["eager", "lazy"]), "from defaults", "As in `[defaults]`."),
        key("idle", Kind::TimeOrNever, "from defaults", "As in `[defaults]`."),
        key("max_output_bytes", Kind::Count, "from defaults", "As in `[defaults]`."),
        key("max_message_bytes", Kind::Count, "from defaults", "As in `[defaults]`."),
        key("inherit_env", Kind::Flag, "from defaults", "As in `[defaults]`."),
        key("pin", Kind::Flag, "from defaults", "As in `[defaults]`."),
        key("allow", Kind::Texts, "all", "Tools to offer, as globs on the names the server uses."),
        key("deny", Kind::Texts, "none", "Tools to withhold, as globs. Wins over `allow`."),
        key(
            "repeatable",
            Kind::Texts,
            "none",
            "Tools that may be called again when it is unknown whether a call arrived, as globs.",
        ),
        key(
            "sandbox",
            Kind::Table(&SANDBOX),
            "none",
            "What the process may touch. If it cannot be enforced, the server does not start.",
        ),
    ],
};

pub(crate) static PACKAGE: Scope = Scope {
    title: "package",
    strangers: Strangers::Warn,
    keys: &[
        key(
            "type",
            Kind::Word(&["npm", "pypi", "docker", "binary", "http"]),
            "required",
            "Where the package comes from.",
        ),
        key(
            "identifier",
            Kind::Template,
            "required",
            "Its name there: a package, an image, a path or an URL.",
        ),
        key("version", Kind::Text, "the newest", "Which one of it."),
        key("args", Kind::Templates, "[]", "Passed to the server."),
        key(
            "program",
            Kind::Text,
            "its own",
            "Which program of an `npm` or `pypi` package is the server, if it has several.",
        ),
        key(
            "runtime_args",
            Kind::Templates,
            "[]",
            "Passed to what runs the server: options of `docker run`, such as `--network=none`.",
        ),
        key(
            "runtime_hint",
            Kind::Text,
            "–",
            "The program that should run it, as its registry says. Does not change how it is run.",
        ),
        key(
            "url",
            Kind::Template,
            "its identifier",
            "The endpoint of an `http` package whose identifier is only a name.",
        ),
    ],
};

/// Who told of a server.
pub(crate) static SOURCE: Scope = Scope {
    title: "source",
    strangers: Strangers::Warn,
    keys: &[
        key(
            "type",
            Kind::Word(&["official", "smithery", "manual"]),
            "required",
            "The official registry, Smithery, or a person.",
        ),
        key("name", Kind::Text, "–", "Its name in the official registry."),
        key("version", Kind::Text, "–", "Which one of it there."),
        key("qualified_name", Kind::Text, "–", "Its name in Smithery."),
    ],
};

pub(crate) static SANDBOX: Scope = Scope {
    title: "sandbox",
    strangers: Strangers::Warn,
    keys: &[
        key("read", Kind::Texts, "everything", "Folders the process may read."),
        key("write", Kind::Texts, "[]", "Folders the process may write."),
        key("net", Kind::Flag, "true", "Whether it may use the network."),
    ],
};

/// The value of a variable that is a secret.
pub(crate) static SECRET: Scope = Scope {
    title: "secret",
    strangers: Strangers::Warn,
    keys: &[
        key("secret_ref", Kind::Text, "–", "The name under which the secret is stored."),
        key("value", Kind::Template, "–", "Text instead of a secret."),
        key("secret", Kind::Flag, "false", "Hides the text where configs are shown."),
        key(
            "required",
            Kind::Flag,
            "true",
            "If false, an unknown secret, or none at all, leaves the variable unset.",
        ),
    ],
};

/// Every table of our file, in the order of the docs.
pub(crate) static SCOPES: [&Scope; 8] =
    [&FILE, &DEFAULTS, &AGENT, &SERVER, &PACKAGE, &SOURCE, &SANDBOX, &SECRET];

impl Scope {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|it| it.name == name)
    }
}
