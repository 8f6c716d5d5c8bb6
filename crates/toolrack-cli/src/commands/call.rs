//! `toolrack call`: calls a tool with arguments typed on the command line.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolrack_client::CallOptions as ClientCallOptions;
use toolrack_manager::ToolWithServer;
use toolrack_mcp::{Tool, ToolCallResult};
use toolrack_platform::read_at_most;
use toolrack_service::{ErrorCode, ErrorDetail};
use toolrack_transport::{RawJson, sanitize_line};

use crate::args::tools::{CallOptions, RequestOptions};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::fan_out::{self, UnlistedServer};
use crate::output::Output;
use crate::printer::Spinner;
use crate::render_content::{self, Files};
use crate::server_selection::{self, ResolvedName, Servers};
use crate::server_session::{ServerSession, with_session};
use crate::settings::StreamKind;
use crate::tool_args::call_expr::{self, Members};
use crate::tool_args::coerce::{Check, build_arguments, signature};
use crate::tool_args::schema::Schema;
use crate::tool_args::{self, Argument, ValueSource};
use toolrack_config::{did_you_mean, similar_names};

/// Maximum size of an argument read from a file or from stdin.
const FILE_LIMIT_BYTES: u64 = 32 << 20;

/// The arguments as typed: an object from `--args` or a call expression, and `name=value` pairs.
struct TypedArguments {
    object: Members,
    arguments: Vec<Argument>,
}

/// Calls a tool and prints its result.
pub(crate) async fn call(options: CallOptions, context: &Context) -> Result<(), CliError> {
    let (name, members) = call_expr::split(&options.tool)?;
    if let (false, None, Some(first)) =
        (options.target.is_given(), &members, options.arguments.first())
    {
        reject_separate_tool_name(name, first)?;
    }
    let reads_stdin = options.args.as_deref() == Some("-");
    if reads_stdin && context.settings.streams.stdin == StreamKind::Terminal {
        context.printer.note("type the arguments as JSON, then press Ctrl-D");
    }
    let (args, words) = (options.args.clone(), options.arguments.clone());
    // Before any server starts: a missing file or invalid JSON should not cost a start.
    let typed =
        context.blocking(move || collect_arguments(args.as_deref(), &words, members)).await?;
    let servers = Servers::find(&options.target, &context.settings, &context.printer)?;
    // Only the named server, so that no other one is asked or started.
    let servers = match server_selection::resolve_typed(name, &servers) {
        Some(ResolvedName { server, .. }) => servers.filter(|candidate| candidate == server),
        None => servers,
    };
    let resolved = server_selection::resolve_typed(name, &servers)
        .or_else(|| server_selection::resolve_public(name, &servers))
        .or_else(|| server_selection::resolve_single(name, &servers));
    let unknown = server_selection::unknown_name("tool", name, &servers, std::iter::empty());
    with_session(servers, &options.request, context, async |session: &ServerSession| {
        let unlisted = session.list_cached().await?;
        session.ensure_unambiguous(name)?;
        if let Some(note) = check_bare_tool(session, name, &unlisted)? {
            context.printer.note(note);
        }
        // The cached tool lists decide before the spelling of the name does.
        let Some(target) = lookup_tool(session, name).or(resolved) else {
            return Err(unknown_tool(session, name, with_unlisted_hint(unknown, &unlisted)));
        };
        let needs_no_connection = options.dry_run && session.has_tool(&target.server, &target.item);
        if !needs_no_connection {
            session.connect(&target.server).await?;
        }
        // Public names are sanitized, so the tool's own name may be spelled differently.
        let target = lookup_tool(session, name)
            .filter(|found| found.server == target.server)
            .unwrap_or(target);
        let call = Call { session, target, options: &options, context };
        call.run(typed).await
    })
    .await
}

/// Rejects `toolrack call SERVER TOOL`, and shows the right spelling.
fn reject_separate_tool_name(name: &str, first: &str) -> Result<(), CliError> {
    if first.contains('=') || name.contains(['.', '/']) {
        return Ok(());
    }
    let hint = format!(
        "for a tool of the server `{name}`, use `{name}.{first}`; arguments are `name=text` or \
         `name:=json`"
    );
    Err(CliError::usage(format!("`{first}` is not a valid argument"), hint))
}

fn lookup_tool(session: &ServerSession, name: &str) -> Option<ResolvedName> {
    let tool = session.find(name)?;
    Some(ResolvedName { server: tool.server().as_ref().to_owned(), item: tool.tool().name.clone() })
}

/// Checks that a name without a server means a single tool. Returns a note if some servers' tools
/// are unknown.
fn check_bare_tool(
    session: &ServerSession,
    name: &str,
    unlisted: &[UnlistedServer],
) -> Result<Option<String>, CliError> {
    let is_bare = |tool: &ToolWithServer| tool.tool().name == name && **tool.name() != *name;
    if !session.find(name).is_some_and(|tool| is_bare(&tool)) {
        return Ok(None);
    }
    let tools = session.tools();
    let same_name = tools.iter().filter(|tool| tool.tool().name == name);
    let owners: Vec<&str> = same_name.map(|tool| &**tool.server()).collect();
    let unlisted_names: Vec<&str> = unlisted.iter().map(|server| server.server.as_str()).collect();
    server_selection::check_bare_name(name, &owners, &unlisted_names)
}

/// Adds a hint about stopped and failed servers, which may have the tool.
fn with_unlisted_hint(unknown: CliError, unlisted: &[UnlistedServer]) -> CliError {
    match fan_out::unlisted_hint(unlisted) {
        Some(more) => {
            let hint = format!("{}; {more}", unknown.hint().unwrap_or_default());
            unknown.with_hint(hint)
        }
        None => unknown,
    }
}

/// Adds similar names from the cached tools.
fn unknown_tool(session: &ServerSession, name: &str, unknown: CliError) -> CliError {
    let tools = session.tools();
    let spellings: Vec<String> =
        tools.iter().map(|tool| format!("{}.{}", tool.server(), tool.tool().name)).collect();
    let similar = similar_names(name, spellings.iter().map(String::as_str));
    if similar.is_empty() {
        return unknown;
    }
    let message = format!("tool `{name}` not found{}", did_you_mean(&similar));
    CliError::unknown(message, unknown.hint().unwrap_or_default())
}

/// Reads all arguments, also those in files and on stdin.
fn collect_arguments(
    args: Option<&str>,
    words: &[String],
    members: Option<Members>,
) -> Result<TypedArguments, CliError> {
    let mut object = members.unwrap_or_default();
    if let Some(args) = args {
        let text = match args.strip_prefix('@') {
            None if args == "-" => read_input("--args")?,
            None => args.to_owned(),
            Some(file) => read_file("--args", Path::new(file))?,
        };
        let given = serde_json::from_str(&text).map_err(|error| {
            let message = format!("`--args` is not a valid JSON object: {error}");
            let hint = "for example: `--args '{\"name\": \"value\"}'`";
            CliError::usage(message, hint).with_field("--args")
        })?;
        object.extend::<Members>(given);
    }
    let mut arguments = Vec::new();
    for typed in words {
        let argument = tool_args::parse(typed)?;
        let text = match argument.source {
            ValueSource::Inline(text) => text,
            ValueSource::Stdin => read_input(&argument.path)?,
            ValueSource::File(path) => read_file(&argument.path, &path)?,
        };
        arguments.push(tool_args::resolve(&argument.path, argument.format, text)?);
    }
    Ok(TypedArguments { object, arguments })
}

pub(crate) fn read_file(field: &str, path: &Path) -> Result<String, CliError> {
    read_at_most(path, FILE_LIMIT_BYTES).map_err(|error| {
        let message = format!("cannot read file {}: {error}", path.display());
        CliError::usage(message, "check the path; use `@@` for a literal `@`").with_field(field)
    })
}

pub(crate) fn read_input(field: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().lock().take(FILE_LIMIT_BYTES).read_to_string(&mut text);
    read.map_err(|error| {
        let message = format!("cannot read stdin: {error}");
        CliError::usage(message, "stdin must be UTF-8 text").with_field(field)
    })?;
    Ok(text)
}

/// A call of a resolved tool.
struct Call<'a> {
    session: &'a ServerSession,
    target: ResolvedName,
    options: &'a CallOptions,
    context: &'a Context,
}

impl Call<'_> {
    async fn run(&self, typed: TypedArguments) -> Result<(), CliError> {
        let arguments = self.arguments(typed).await?;
        if self.options.dry_run {
            let (name, arguments) = (json!(self.target.item), Value::Object(arguments));
            self.context.printer.document(&format!(
                r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":{name},"arguments":{arguments}}}}}"#
            ));
            return Ok(());
        }
        let arguments = to_raw_value(&arguments).map_err(io::Error::from)?;
        let result = self.send(&arguments).await?;
        self.print(&result)
    }

    /// Arguments coerced to the types of the tool's schema.
    async fn arguments(&self, typed: TypedArguments) -> Result<Members, CliError> {
        let ResolvedName { server, item } = &self.target;
        let Some(tool) = self.session.tool(server, item) else {
            let denied = self.session.denied_error(server, item);
            return Err(denied.unwrap_or_else(|| self.no_such_tool()));
        };
        if !self.session.has_tool(server, item) {
            // The tool is listed but denied: the manager returns the error that names the rule.
            self.session
                .call((server, item), RawValue::NULL, &ClientCallOptions::default())
                .await?;
        }
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        let check = if self.options.no_check { Check::No } else { Check::Yes };
        build_arguments(typed.object, typed.arguments, Schema::new(&schema), check)
            .map_err(|error_details| invalid_arguments(error_details, &tool, &schema))
    }

    fn no_such_tool(&self) -> CliError {
        let ResolvedName { server, item } = &self.target;
        let tools = self.session.tools();
        let names = tools.iter().filter(|tool| **tool.server() == **server);
        let names: Vec<&str> = names.map(|tool| tool.tool().name.as_str()).collect();
        let similar = did_you_mean(&similar_names(item, names.iter().copied()));
        let hint = match names.as_slice() {
            [] => format!("`{server}` has no tools"),
            names => format!("available tools: {}", sanitize_line(&names.join(", "), 500)),
        };
        CliError::unknown(format!("`{server}` has no tool `{item}`{similar}"), hint)
    }

    async fn send(&self, arguments: &RawValue) -> Result<RawJson, CliError> {
        let ResolvedName { server, item } = &self.target;
        let spinner = Arc::new(Spinner::new(&self.context.printer));
        spinner.phase(&format!("{item}: waiting for the response"));
        let (reporter, name) = (Arc::clone(&spinner), item.clone());
        let options = ClientCallOptions {
            on_progress: Some(Arc::new(move |progress| reporter.report(&name, progress))),
            ..call_options(&self.options.request, self.context)
        };
        spinner.during(self.session.call((server, item), arguments, &options)).await
    }

    fn print(&self, raw: &RawJson) -> Result<(), CliError> {
        let printer = &self.context.printer;
        let result = ToolCallResult::parse(raw.as_bytes()).map_err(|error| {
            let message = format!("invalid tool result: {error}");
            let hint = "see it with `-o raw`";
            CliError::new(ExitCode::ToolFailed, ErrorCode::ServiceUnavailable, message, hint)
        });
        if printer.output() == Output::Raw {
            printer.data(raw.as_bytes());
            printer.data(b"\n");
            let mut files = Files::new(self.options.save.as_deref());
            if let Ok(result) = &result {
                render_content::render_result(result, &mut files)?;
                files.note_saved(printer);
            }
            let is_error = result.is_ok_and(|result| result.is_error);
            return if is_error { Err(CliError::tool_failed(&self.target.item)) } else { Ok(()) };
        }
        let result = result?;
        let mut files = Files::new(self.options.save.as_deref());
        let text = render_content::render_result(&result, &mut files)?;
        match printer.output() {
            Output::Table if text.is_empty() => printer.note("note: the result is empty"),
            Output::Table => {
                printer.line(text);
                files.note_unsaved(printer);
            }
            _ => {
                printer.document(&files.with_saved_paths(&String::from_utf8_lossy(raw.as_bytes())));
            }
        }
        if result.is_error { Err(CliError::tool_failed(&self.target.item)) } else { Ok(()) }
    }
}

/// The timeouts of a request, from the options or the environment.
pub(crate) fn call_options(options: &RequestOptions, context: &Context) -> ClientCallOptions {
    let timeout = options.timeout(&context.settings);
    ClientCallOptions { timeout, total_timeout: timeout, ..ClientCallOptions::default() }
}

/// All invalid arguments, with the tool's signature as the hint.
fn invalid_arguments(error_details: Vec<ErrorDetail>, tool: &Tool, schema: &Value) -> CliError {
    let signature_text = sanitize_line(&signature(Schema::new(schema)), 500);
    let hint = match signature_text.as_str() {
        "" => format!("`{}` takes no arguments", tool.name),
        signature_text => format!("`{}` takes: {signature_text}", tool.name),
    };
    let error_details = error_details
        .into_iter()
        .map(|error_detail| error_detail.with_hint(hint.clone()))
        .collect();
    CliError::from_details(ExitCode::Usage, error_details)
}
