//! Table of all keys of `toolrack.toml`; the parser, the JSON Schema and docs/config.md derive from it.
//!
//! **Invariant:** a key that is not here is not read, and every key here is documented.

/// A key and its type.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The name under which its value is read: another one for some keys of other tools.
    pub(crate) field: &'static str,
    pub(crate) kind: KeyType,
    /// Default, in Markdown.
    pub(crate) default: &'static str,
    /// Description, one sentence.
    pub(crate) doc: &'static str,
}

/// Type of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyType {
    /// Text with `${…}` references.
    Template,
    /// Non-empty text without references.
    Text,
    Flag,
    /// A duration with unit.
    Time,
    /// The same, or `never`.
    TimeOrNever,
    /// A positive integer.
    Count,
    /// One of several words.
    Word(&'static [&'static str]),
    /// A list of templates.
    Templates,
    /// A list of non-empty texts.
    Texts,
    /// A map of templates.
    TemplateMap,
    /// A map of templates or secrets.
    EnvMap,
    Table(&'static TableKeys),
    Tables(&'static TableKeys),
    /// A table of any values, which is kept and not read.
    FreeTable,
    /// A bare number of seconds or milliseconds; only in files of other tools.
    Seconds,
    Millis,
    /// A map of texts, numbers or booleans; only in files of other tools.
    ScalarMap,
    /// The same, as environment variables.
    ScalarEnvMap,
}

/// Keys of a table, and the policy for unknown ones.
#[derive(Debug)]
pub(crate) struct TableKeys {
    /// Title in the schema and the docs.
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [Key],
    /// Keys that are known, but have no effect; only in files of other tools.
    pub(crate) ignored: &'static [&'static str],
    pub(crate) unknown_keys: UnknownKeys,
}

/// Policy for unknown keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownKeys {
    /// Warn: the table is ours alone.
    Warn,
    /// Warn only if the key looks like a misspelled one of ours: the table is shared with other programs,
    /// such as Spacebot.
    WarnIfSimilar,
    /// Report that the key of another tool is not imported.
    NotImported,
}

const fn key(name: &'static str, kind: KeyType, default: &'static str) -> Key {
    Key { name, field: name, kind, default, doc: "" }
}

impl Key {
    const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }
}

/// A key of a server that has its default in `[defaults]`.
const fn from_defaults(name: &'static str, kind: KeyType) -> Key {
    key(name, kind, "from defaults").doc("As in `[defaults]`.")
}

const fn table(title: &'static str, unknown_keys: UnknownKeys, keys: &'static [Key]) -> TableKeys {
    TableKeys { title, keys, ignored: &[], unknown_keys }
}

/// A key of another tool.
pub(crate) const fn foreign(name: &'static str, kind: KeyType) -> Key {
    alias(name, kind, name)
}

/// A key of another tool that has another name here. The first of several aliases in a table wins.
pub(crate) const fn alias(name: &'static str, kind: KeyType, field: &'static str) -> Key {
    Key { name, field, kind, default: "", doc: "" }
}

/// A table of another tool.
pub(crate) const fn foreign_table(keys: &'static [Key]) -> TableKeys {
    table("", UnknownKeys::NotImported, keys)
}

impl TableKeys {
    /// Adds keys that are known, but have no effect here.
    pub(crate) const fn ignoring(self, ignored: &'static [&'static str]) -> Self {
        Self { ignored, ..self }
    }
}

/// Keys of a server that say what it is. All others are settings.
const IDENTITY: &[&str] =
    &["name", "id", "enabled", "transport", "command", "url", "package", "env", "source", "config"];

/// Whether a key of a server table is a setting, such as `timeout` or `args`.
pub fn is_setting(name: &str) -> bool {
    !IDENTITY.contains(&name) && SERVER.keys.iter().any(|key| key.name == name)
}

/// Values of `transport`. The last two mean `http`.
pub(crate) const TRANSPORTS: &[&str] = &["stdio", "http", "streamable-http", "sse"];

pub(crate) static FILE: TableKeys = table(
    "file",
    UnknownKeys::WarnIfSimilar,
    &[
        key("$schema", KeyType::Text, "–").doc("JSON Schema of this file, for editors."),
        key("defaults", KeyType::Table(&DEFAULTS), "–")
            .doc("Servers of every agent, and default settings."),
        key("agents", KeyType::Tables(&AGENT), "none").doc("Agents with their own servers."),
    ],
);

pub(crate) static DEFAULTS: TableKeys = table("defaults", UnknownKeys::WarnIfSimilar, &[
    key("timeout", KeyType::Time, "`120s`")
        .doc("Timeout of a call without progress. Progress restarts it."),
    key("max_timeout", KeyType::Time, "`10m`")
        .doc("Total timeout of a call. At least `timeout`."),
    key("startup_timeout", KeyType::Time, "`30s`")
        .doc("Timeout from the start of a server to its first tool list. Launchers that may download the server, such as `npx` or `uvx`, get 2 minutes, unless this is below 30 s."),
    key("install_timeout", KeyType::Time, "`10m`")
        .doc("Timeout of a package install, before the server starts."),
    key("start", KeyType::Word(&["eager", "lazy"]), "`eager`")
        .doc("`lazy` starts a server with its first call; its tools come from the tool cache."),
    key("idle", KeyType::TimeOrNever, "`never`")
        .doc("Idle time before a server is stopped. Its tools stay listed."),
    key("max_output_bytes", KeyType::Count, "`50000`")
        .doc("Longer results are truncated for agents, with a note. `toolrack call`, the gateway and the HTTP API return the full result."),
    key("max_message_bytes", KeyType::Count, "`33554432`")
        .doc("A longer message from a server fails its call."),
    key("max_list_bytes", KeyType::Count, "`33554432`")
        .doc("Pages of a server's list of tools, prompts or resources beyond this total are dropped, with a note. The first page is always kept."),
    key("inherit_env", KeyType::Flag, "`false`")
        .doc("Passes the whole environment to child processes instead of the allow-list."),
    key("pin", KeyType::Flag, "`false`")
        .doc("Withholds a tool with a changed definition until the change is approved."),
    key("name_separator", KeyType::Text, "`_`")
        .doc("Separator between server and tool in public names. One to four of `A-Z a-z 0-9 _ -`."),
    key("name_limit", KeyType::Count, "`64`")
        .doc("Maximum length of public names; longer ones are cut and get a hash suffix. From 24 to 256."),
    key("mcp", KeyType::Tables(&SERVER), "none")
        .doc("Servers of every agent."),
]);

pub(crate) static AGENT: TableKeys = table(
    "agents",
    UnknownKeys::WarnIfSimilar,
    &[
        key("id", KeyType::Text, "required").doc("Agent id."),
        key("mcp", KeyType::Tables(&SERVER), "none")
            .doc("Servers of this agent. An entry with the name of a default replaces it."),
    ],
);

pub(crate) static SERVER: TableKeys = table("mcp", UnknownKeys::Warn, &[
    key("name", KeyType::Text, "required")
        .doc("Server name. Unique within its list."),
    key("id", KeyType::Text, "assigned")
        .doc("UUID of the entry. Written by `toolrack`, not by hand."),
    key("enabled", KeyType::Flag, "`true`")
        .doc("A disabled server is listed and never connected."),
    key("transport", KeyType::Word(TRANSPORTS), "detected")
        .doc("`stdio` or `http`. `streamable-http` and `sse` mean `http`: the protocol is detected. Optional."),
    key("command", KeyType::Template, "–")
        .doc("Program of a `stdio` server: a name on `PATH`, or a path; `~/` is the home directory. No shell is involved."),
    key("args", KeyType::Templates, "`[]`")
        .doc("Arguments of the program."),
    key("env", KeyType::EnvMap, "`{}`")
        .doc("Environment variables: a string, or `{ secret_ref = \"name\", required = true }`."),
    key("cwd", KeyType::Template, "inherited")
        .doc("Working directory; `~/` is the home directory."),
    key("url", KeyType::Template, "–")
        .doc("URL of an `http` server."),
    key("headers", KeyType::TemplateMap, "`{}`")
        .doc("Request headers."),
    key("package", KeyType::Table(&PACKAGE), "–")
        .doc("A published package instead of `command` or `url`."),
    key("source", KeyType::Table(&SOURCE), "manual")
        .doc("Registry of the server. Written by `toolrack`; does not change how it is run."),
    key("config", KeyType::FreeTable, "none")
        .doc("Free-form values of the application that manages the server. Kept, and never read by `toolrack`."),
    from_defaults("timeout", KeyType::Time),
    from_defaults("max_timeout", KeyType::Time),
    from_defaults("startup_timeout", KeyType::Time),
    from_defaults("install_timeout", KeyType::Time),
    from_defaults("start", KeyType::Word(&["eager", "lazy"])),
    from_defaults("idle", KeyType::TimeOrNever),
    from_defaults("max_output_bytes", KeyType::Count),
    from_defaults("max_message_bytes", KeyType::Count),
    from_defaults("max_list_bytes", KeyType::Count),
    from_defaults("inherit_env", KeyType::Flag),
    from_defaults("pin", KeyType::Flag),
    key("allow", KeyType::Texts, "all")
        .doc("Allowed tools, as globs on the server's tool names."),
    key("deny", KeyType::Texts, "none")
        .doc("Denied tools, as globs. Takes precedence over `allow`."),
    key("repeatable", KeyType::Texts, "none")
        .doc("Tools that may be retried when it is unknown whether a call was delivered, as globs."),
    key("sandbox", KeyType::Table(&SANDBOX), "none")
        .doc("Sandbox of the process. If it cannot be enforced, the server does not start."),
]);

/// The runners of all package types; [`PackageKind::runners`](crate::PackageKind::runners) has those of each.
const RUNNERS: &[&str] = &["npx", "bunx", "pnpm", "uvx", "pipx", "docker", "podman"];

pub(crate) static PACKAGE: TableKeys = table(
    "package",
    UnknownKeys::Warn,
    &[
        key("type", KeyType::Word(&["npm", "pypi", "docker", "binary", "http"]), "required")
            .doc("Package registry."),
        key("identifier", KeyType::Template, "required").doc("Package name, image, path or URL."),
        key("version", KeyType::Text, "the newest").doc("Version."),
        key("args", KeyType::Templates, "`[]`").doc("Arguments of the server."),
        key("program", KeyType::Text, "its own")
            .doc("Program within an `npm` or `pypi` package, if it has several."),
        key("runtime_args", KeyType::Templates, "`[]`").doc(
            "Arguments of the package runner: options of `docker run`, such as `--network=none`.",
        ),
        key("runtime_hint", KeyType::Word(RUNNERS), "none").doc(
            "Program that runs the package: `npx`, `bunx` or `pnpm` for `npm`, `uvx` or `pipx` for `pypi`, `docker` or `podman` for `docker`. Without it, `npm` and `pypi` packages are installed once and started directly, and images are run with `docker`.",
        ),
        key("url", KeyType::Template, "its identifier")
            .doc("URL of an `http` package whose identifier is only a name."),
    ],
);

/// Registry source of a server.
pub(crate) static SOURCE: TableKeys = table(
    "source",
    UnknownKeys::Warn,
    &[
        key("type", KeyType::Word(&["official", "smithery", "manual"]), "required")
            .doc("The official registry, Smithery, or manual."),
        key("name", KeyType::Text, "–").doc("Name in the official registry."),
        key("version", KeyType::Text, "–").doc("Version in the official registry."),
        key("qualified_name", KeyType::Text, "–").doc("Name in Smithery."),
    ],
);

pub(crate) static SANDBOX: TableKeys = table(
    "sandbox",
    UnknownKeys::Warn,
    &[
        key("read", KeyType::Texts, "everything").doc("Readable folders."),
        key("write", KeyType::Texts, "`[]`").doc("Writable folders."),
        key("net", KeyType::Flag, "`true`").doc("Network access."),
    ],
);

/// Secret value of an environment variable.
pub(crate) static SECRET: TableKeys = table(
    "secret",
    UnknownKeys::Warn,
    &[
        key("secret_ref", KeyType::Text, "–").doc("Name of the stored secret."),
        key("value", KeyType::Template, "–").doc("Plain value instead of a secret."),
        key("secret", KeyType::Flag, "`false`").doc("Hides the value where configs are shown."),
        key("required", KeyType::Flag, "`true`").doc(
            "If false, the variable is empty without a value or if the secret does not exist.",
        ),
    ],
);

/// All tables, in the order of the docs.
pub(crate) static SCOPES: [&TableKeys; 8] =
    [&FILE, &DEFAULTS, &AGENT, &SERVER, &PACKAGE, &SOURCE, &SANDBOX, &SECRET];
