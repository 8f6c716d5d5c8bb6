//! `toolrack call`: calls a tool with arguments typed on the command line.

use std::io::{self, Read as _};
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolrack_client::CallOptions as ClientCallOptions;
use toolrack_mcp::{Tool, ToolCallResult};
use toolrack_platform::read_at_most;
use toolrack_service::{ErrorCode, ErrorDetail};
use toolrack_transport::{RawJson, sanitize_line};

use crate::args::tools::{CallOptions, RequestOptions};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::fan_out;
use crate::output::Output;
use crate::printer::Printer;
use crate::render_content::{self, Files};
use crate::server_selection::{self, ResolvedName, Servers, Warnings};
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
    let servers = Servers::select(&options.target, Warnings::Usual, context)?;
    let named = server_selection::resolve_typed(name, &servers);
    let guessed = server_selection::resolve_public(name, &servers)
        .or_else(|| server_selection::resolve_single(name, &servers));
    // Only the named server, so that no other one is asked or started.
    let servers = match &named {
        Some(named) => servers.filter(|server| server == named.server),
        None => servers,
    };
    with_session(servers, &options.request, context, async |session: &ServerSession| {
        let mut target = match named {
            // The name says which server it is, so its tools are listed when it is connected. Behind
            // the daemon it may be connected already.
            Some(named) if !options.dry_run && !session.uses_daemon() => named,
            named => find_target(session, name, named.or(guessed), context).await?,
        };
        if !options.dry_run || !session.has_tool(&target) {
            session.connect(&target.server).await?;
        }
        // Public names are sanitized, so the tool's own name may be spelled differently.
        if let Some(found) = lookup_tool(session, name)
            && found.server == target.server
        {
            target = found;
        }
        let check = if options.no_check { Check::No } else { Check::Yes };
        let arguments = coerce_arguments(session, &target, typed, check).await?;
        if options.dry_run {
            let (name, arguments) = (json!(target.item), Value::Object(arguments));
            context.printer.document(&format!(
                r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":{name},"arguments":{arguments}}}}}"#
            ));
            return Ok(());
        }
        let arguments = to_raw_value(&arguments).map_err(io::Error::from)?;
        let call_options = call_options(&options.request, context);
        let result = session.call(&target, &arguments, call_options).await?;
        print_result(&result, &target.item, options.save.as_deref(), &context.printer)
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

/// The tool that a name means, without starting a server. The cached tool lists decide before
/// `guessed`, the spelling of the name, does.
async fn find_target(
    session: &ServerSession,
    name: &str,
    guessed: Option<ResolvedName>,
    context: &Context,
) -> Result<ResolvedName, CliError> {
    let unlisted = session.list_cached().await?;
    session.manager().ensure_unambiguous(name)?;
    let tools = session.manager().all_tools();
    let found = session.manager().find_tool(name);
    if found.is_some_and(|tool| tool.tool().name == name && **tool.name() != *name) {
        let same_name = tools.iter().filter(|tool| tool.tool().name == name);
        let owners: Vec<&str> = same_name.map(|tool| &**tool.server()).collect();
        let unlisted: Vec<&str> = unlisted.iter().map(|server| server.server.as_str()).collect();
        if let Some(note) = server_selection::check_bare_name(name, &owners, &unlisted)? {
            context.printer.note(note);
        }
    }
    lookup_tool(session, name).or(guessed).ok_or_else(|| {
        let spellings = tools.iter().map(|tool| format!("{}.{}", tool.server(), tool.tool().name));
        let spellings: Vec<String> = spellings.collect();
        let unknown = server_selection::unknown_name("tool", name, &session.configs, &spellings);
        // Stopped and failed servers may have the tool.
        let Some(more) = fan_out::unlisted_hint(&unlisted) else { return unknown };
        let hint = format!("{}; {more}", unknown.hint().unwrap_or_default());
        unknown.with_hint(hint)
    })
}

fn lookup_tool(session: &ServerSession, name: &str) -> Option<ResolvedName> {
    let tool = session.manager().find_tool(name)?;
    Some(ResolvedName { server: tool.server().as_ref().to_owned(), item: tool.tool().name.clone() })
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
        let text = read_value(&argument.path, argument.source)?;
        arguments.push(tool_args::resolve(&argument.path, argument.format, text)?);
    }
    Ok(TypedArguments { object, arguments })
}

/// The text of an argument's value.
pub(crate) fn read_value(field: &str, source: ValueSource) -> Result<String, CliError> {
    match source {
        ValueSource::Inline(text) => Ok(text),
        ValueSource::Stdin => read_input(field),
        ValueSource::File(path) => read_file(field, &path),
    }
}

fn read_file(field: &str, path: &Path) -> Result<String, CliError> {
    read_at_most(path, FILE_LIMIT_BYTES).map_err(|error| {
        let message = format!("cannot read file {}: {error}", path.display());
        CliError::usage(message, "check the path; use `@@` for a literal `@`").with_field(field)
    })
}

fn read_input(field: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().lock().take(FILE_LIMIT_BYTES).read_to_string(&mut text);
    read.map_err(|error| {
        let message = format!("cannot read stdin: {error}");
        CliError::usage(message, "stdin must be UTF-8 text").with_field(field)
    })?;
    Ok(text)
}

/// Arguments coerced to the types of the tool's schema.
async fn coerce_arguments(
    session: &ServerSession,
    target: &ResolvedName,
    typed: TypedArguments,
    check: Check,
) -> Result<Members, CliError> {
    let Some(tool) = session.tool(target) else {
        return Err(session.denied_error(target).unwrap_or_else(|| no_such_tool(session, target)));
    };
    if !session.has_tool(target) {
        // The tool is listed but denied: the manager returns the error that names the rule.
        session.call(target, RawValue::NULL, ClientCallOptions::default()).await?;
    }
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    build_arguments(typed.object, typed.arguments, Schema::new(&schema), check)
        .map_err(|error_details| invalid_arguments(error_details, &tool, &schema))
}

fn no_such_tool(session: &ServerSession, target: &ResolvedName) -> CliError {
    let ResolvedName { server, item } = target;
    let tools = session.manager().all_tools();
    let names = tools.iter().filter(|tool| **tool.server() == **server);
    let names: Vec<&str> = names.map(|tool| tool.tool().name.as_str()).collect();
    let similar = did_you_mean(&similar_names(item, names.iter().copied()));
    let hint = match names.as_slice() {
        [] => format!("`{server}` has no tools"),
        names => format!("available tools: {}", sanitize_line(&names.join(", "), 500)),
    };
    CliError::unknown(format!("`{server}` has no tool `{item}`{similar}"), hint)
}

fn print_result(
    raw: &RawJson,
    tool: &str,
    save_dir: Option<&Path>,
    printer: &Printer,
) -> Result<(), CliError> {
    let result = ToolCallResult::parse(raw.as_bytes()).map_err(|error| {
        let message = format!("invalid tool result: {error}");
        let hint = "see it with `-o raw`";
        CliError::new(ExitCode::ToolFailed, ErrorCode::ServiceUnavailable, message, hint)
    });
    let is_raw = printer.output() == Output::Raw;
    if is_raw {
        printer.data(raw.as_bytes());
        printer.data(b"\n");
    }
    let result = match result {
        // What cannot be parsed has been printed as it is.
        Err(_) if is_raw => return Ok(()),
        result => result?,
    };
    let mut files = Files::new(save_dir);
    let text = render_content::render_result(&result, &mut files)?;
    match printer.output() {
        Output::Raw => files.note_saved(printer),
        Output::Table if text.is_empty() => printer.note("note: the result is empty"),
        Output::Table => {
            printer.line(text);
            files.note_unsaved(printer);
        }
        _ => printer.document(&files.with_saved_paths(&String::from_utf8_lossy(raw.as_bytes()))),
    }
    if result.is_error { Err(CliError::tool_failed(tool)) } else { Ok(()) }
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
    // The hint of the first one counts for all.
    CliError::from_details(ExitCode::Usage, error_details).with_hint(hint)
}
