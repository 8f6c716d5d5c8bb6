//! `toolrack call`: calls a tool with arguments typed on the command line.

use std::io;
use std::path::Path;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolrack_client::CallOptions as ClientCallOptions;
use toolrack_config::{did_you_mean, similar_names};
use toolrack_mcp::ToolCallResult;
use toolrack_service::{ErrorCode, ErrorDetail};
use toolrack_transport::{RawJson, sanitize_line};

use crate::args::{CallOptions, RequestOptions};
use crate::commands::Context;
use crate::error::{CliError, ExitCode};
use crate::printer::{Output, Printer};
use crate::render_content::{self, Files};
use crate::server_selection::{self, ResolvedName, Servers, Warnings};
use crate::server_session::{ServerSession, prepare_guardian, unlisted_hint, with_session};
use crate::settings::StreamKind;
use crate::tool_args::call_expr::{self, Members};
use crate::tool_args::coerce::{build_arguments, signature};
use crate::tool_args::schema::Schema;
use crate::tool_args::{KeyValue, TypedArguments, read_file, read_input};

/// Calls a tool and prints its result.
pub(crate) async fn call(options: CallOptions, context: &Context) -> Result<(), CliError> {
    let (name, members) = call_expr::split(&options.tool)?;
    if let (false, None, Some(first)) =
        (options.target.is_given(), &members, options.arguments.first())
        && !first.contains('=')
        && !name.contains(['.', '/'])
    {
        // `toolrack call SERVER TOOL`.
        let hint = format!(
            "for a tool of the server `{name}`, use `{name}.{first}`; arguments are `name=text` \
             or `name:=json`"
        );
        return Err(CliError::usage(format!("`{first}` is not a valid argument"), hint));
    }
    let reads_stdin = options.args.as_deref() == Some("-");
    if reads_stdin && context.settings.streams.stdin == StreamKind::Terminal {
        context.printer.note("type the arguments as JSON, then press Ctrl-D");
    }
    let (args, words) = (options.args.clone(), options.arguments.clone());
    let reads_files =
        words.iter().chain(&args).any(|text| text.contains("=@") || text.starts_with('@'));
    let collect = move || collect_arguments(args.as_deref(), &words, members);
    // Before any server starts: a missing file or invalid JSON should not cost a start.
    let mut typed =
        if reads_stdin || reads_files { context.blocking(collect).await? } else { collect()? };
    typed.is_unchecked = options.no_check;
    let guardian = prepare_guardian(&options.target, context)?;
    // Only the named server, so that no other one is asked or started.
    let mut servers = Servers::select_for(Some(name), &options.target, Warnings::Usual, context)?;
    servers.guardian = guardian;
    let named = server_selection::resolve_typed(name, &servers);
    let guessed = server_selection::resolve_public(name, &servers)
        .or_else(|| server_selection::resolve_single(name, &servers));
    with_session(servers, &options.request, context, async |session: &ServerSession| {
        let mut target = match named {
            // The name says which server it is, so its tools are listed when it is connected. Behind
            // the daemon it may be connected already.
            Some(named) if !options.dry_run && session.daemon.is_none() => named,
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
        let arguments = coerce_arguments(session, &target, typed).await?;
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
        let unlisted: Vec<&str> = unlisted.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(note) = server_selection::check_bare_name(name, &owners, &unlisted)? {
            context.printer.note(note);
        }
    }
    lookup_tool(session, name).or(guessed).ok_or_else(|| {
        let spellings = tools.iter().map(|tool| format!("{}.{}", tool.server(), tool.tool().name));
        let spellings: Vec<String> = spellings.collect();
        let unknown = server_selection::unknown_name("tool", name, &session.configs, &spellings);
        // Stopped and failed servers may have the tool.
        let Some(more) = unlisted_hint(&unlisted) else { return unknown };
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
    let mut typed = TypedArguments { object, ..TypedArguments::default() };
    for word in words {
        let argument = KeyValue::parse(word)?;
        let value = argument.read()?;
        typed.members.push((argument.path, value));
    }
    Ok(typed)
}

/// Arguments coerced to the types of the tool's schema.
async fn coerce_arguments(
    session: &ServerSession,
    target: &ResolvedName,
    typed: TypedArguments,
) -> Result<Members, CliError> {
    let Some(tool) = session.tool(target) else {
        return Err(session.denied_error(target).unwrap_or_else(|| no_such_tool(session, target)));
    };
    if !session.has_tool(target) {
        // The tool is listed but denied: the manager returns the error that names the rule.
        session.call(target, RawValue::NULL, ClientCallOptions::default()).await?;
    }
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let schema = Schema::new(&schema);
    build_arguments(typed, schema)
        .map_err(|error_details| invalid_arguments(error_details, &tool.name, &signature(schema)))
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
    let parsed = ToolCallResult::parse(raw.as_bytes());
    if printer.output == Output::Raw {
        printer.data(raw.as_bytes());
        printer.data(b"\n");
        if parsed.is_err() {
            // It has been printed as it is.
            return Ok(());
        }
    }
    let result = parsed.map_err(|error| {
        let message = format!("invalid tool result: {error}");
        let hint = "see it with `-o raw`";
        CliError::new(ExitCode::ToolFailed, ErrorCode::ServiceUnavailable, message, hint)
    })?;
    let mut files = Files::new(save_dir);
    let text = render_content::render_result(&result, &mut files)?;
    match printer.output {
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

/// All invalid arguments of a tool or prompt, with its signature as the hint.
pub(crate) fn invalid_arguments(
    error_details: Vec<ErrorDetail>,
    name: &str,
    signature: &str,
) -> CliError {
    let hint = match sanitize_line(signature, 500).as_str() {
        "" => format!("`{name}` takes no arguments"),
        signature => format!("`{name}` takes: {signature}"),
    };
    // The hint of the first one counts for all.
    CliError::from_details(ExitCode::Usage, error_details).with_hint(hint)
}
