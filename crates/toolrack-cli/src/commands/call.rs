//! `toolrack call`: one tool, with arguments as people type them.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolrack_client::CallOptions as Conduct;
use toolrack_manager::{ToolWithServer, read_at_most};
use toolrack_mcp::{Tool, ToolCallResult};
use toolrack_service::{ErrorCode, ServiceFault};
use toolrack_transport::{RawJson, plain_text};

use crate::args::tools::{CallOptions, ConductOptions};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::fan_out::{self, Absent};
use crate::output::Output;
use crate::printer::Live;
use crate::render_content::{self, Files};
use crate::server_selection::{self, Meant, Servers};
use crate::server_session::{Rack, with_session};
use crate::settings::End;
use crate::suggest::{meant, near};
use crate::tool_args::call_expr::{self, Members};
use crate::tool_args::coerce::{Check, shape, signature};
use crate::tool_args::schema::Schema;
use crate::tool_args::{self, Argument, From};

/// The longest argument that is read from a file.
const FILE_LIMIT_BYTES: u64 = 32 << 20;

/// What was typed: an object as a whole, and single arguments.
struct Typed {
    object: Members,
    arguments: Vec<Argument>,
}

/// Calls a tool and shows what it answered.
pub(crate) async fn call(options: CallOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    let (name, members) = call_expr::split(&options.tool)?;
    if let (false, None, Some(first)) =
        (options.target.is_given(), &members, options.arguments.first())
    {
        together(name, first)?;
    }
    let is_awaited = options.args.as_deref() == Some("-");
    if is_awaited && surroundings.settings.terminal.input == End::Person {
        surroundings.printer.note("type the arguments as JSON, then Ctrl-D");
    }
    let (args, words) = (options.args.clone(), options.arguments.clone());
    let typed = surroundings.blocking(move || gather(args.as_deref(), &words, members)).await?;
    let servers = Servers::find(&options.target, &surroundings.settings, &surroundings.printer)?;
    let servers = match server_selection::resolve_typed(name, &servers) {
        Some(Meant { server, .. }) => servers.keep(|it| it == server),
        None => servers,
    };
    let meant = server_selection::resolve_typed(name, &servers)
        .or_else(|| server_selection::resolve_public(name, &servers))
        .or_else(|| server_selection::resolve_single(name, &servers));
    let nobody = server_selection::unknown_name("tool", name, &servers, std::iter::empty());
    with_session(servers, &options.conduct, surroundings, async |rack: &Rack| {
        let absent = rack.recall().await?;
        rack.unambiguous(name)?;
        if let Some(note) = bare(rack, name, &absent)? {
            surroundings.printer.note(note);
        }
        // What is remembered of all tools knows more than the look of a name.
        let Some(target) = known(rack, name).or(meant) else {
            return Err(not_known(rack, name, suspecting(nobody, &absent)));
        };
        let is_enough = options.dry_run && rack.has_tool(&target.server, &target.item);
        if !is_enough {
            rack.connect(&target.server).await?;
        }
        // A public name may stand for a tool whose own name is written otherwise.
        let target = known(rack, name).filter(|it| it.server == target.server).unwrap_or(target);
        let errand = Errand { rack, target, options: &options, surroundings };
        errand.run(typed).await
    })
    .await
}

/// Refuses the tool as a word of its own behind its server.
fn together(name: &str, first: &str) -> Result<(), Failure> {
    if first.contains('=') || name.contains(['.', '/']) {
        return Ok(());
    }
    let hint = format!(
        "if it is a tool of the server `{name}`, write `{name}.{first}`; arguments are written `name=text` or \
         `name:=json`"
    );
    Err(Failure::usage(format!("`{first}` is no argument"), hint))
}

fn known(rack: &Rack, name: &str) -> Option<Meant> {
    let tool = rack.find(name)?;
    Some(Meant { server: tool.server().as_ref().to_owned(), item: tool.tool().name.clone() })
}

/// Sees that a name without a server means one tool only, and says what is not known about that.
fn bare(rack: &Rack, name: &str, absent: &[Absent]) -> Result<Option<String>, Failure> {
    let is_bare = |it: &ToolWithServer| it.tool().name == name && **it.name() != *name;
    if !rack.find(name).is_some_and(|it| is_bare(&it)) {
        return Ok(None);
    }
    let tools = rack.tools();
    let namesakes = tools.iter().filter(|it| it.tool().name == name);
    let owners: Vec<&str> = namesakes.map(|it| &**it.server()).collect();
    let silent: Vec<&str> = absent.iter().map(|it| it.server.as_str()).collect();
    server_selection::check_bare_name(name, &owners, &silent)
}

/// The same failure, with servers that do not run and may have what was meant.
fn suspecting(nobody: Failure, absent: &[Absent]) -> Failure {
    match fan_out::unlisted_hint(absent) {
        Some(suspicion) => {
            let hint = format!("{}; {suspicion}", nobody.hint().unwrap_or_default());
            nobody.advising(hint)
        }
        None => nobody,
    }
}

/// Names that are remembered may tell what was meant.
fn not_known(rack: &Rack, name: &str, nobody: Failure) -> Failure {
    let tools = rack.tools();
    let spellings: Vec<String> =
        tools.iter().map(|it| format!("{}.{}", it.server(), it.tool().name)).collect();
    let close = near(name, spellings.iter().map(String::as_str));
    if close.is_empty() {
        return nobody;
    }
    let message = format!("there is no tool `{name}`{}", meant(&close));
    Failure::unknown(message, nobody.hint().unwrap_or_default())
}

/// Reads everything that was typed, from files and from the standard input too.
fn gather(
    args: Option<&str>,
    words: &[String],
    members: Option<Members>,
) -> Result<Typed, Failure> {
    let mut object = members.unwrap_or_default();
    if let Some(args) = args {
        let text = match args.strip_prefix('@') {
            None if args == "-" => read_input("--args")?,
            None => args.to_owned(),
            Some(file) => read_file("--args", Path::new(file))?,
        };
        let given = serde_json::from_str(&text).map_err(|error| {
            let message = format!("`--args` is no JSON object: {error}");
            let hint = "write it as in `--args '{\"name\": \"value\"}'`";
            Failure::usage(message, hint).at("--args")
        })?;
        object.extend::<Members>(given);
    }
    let mut arguments = Vec::new();
    for typed in words {
        let word = tool_args::parse(typed)?;
        let text = match word.from {
            From::Here(text) => text,
            From::Input => read_input(&word.path)?,
            From::File(path) => read_file(&word.path, &path)?,
        };
        arguments.push(tool_args::resolve(&word.path, word.reads, text)?);
    }
    Ok(Typed { object, arguments })
}

pub(crate) fn read_file(field: &str, path: &Path) -> Result<String, Failure> {
    read_at_most(path, FILE_LIMIT_BYTES).map_err(|error| {
        let message = format!("the file {} cannot be read: {error}", path.display());
        Failure::usage(message, "check the path; `@@` begins a text with an `@`").at(field)
    })
}

pub(crate) fn read_input(field: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().take(FILE_LIMIT_BYTES).read_to_string(&mut text);
    read.map_err(|error| {
        let message = format!("the standard input cannot be read: {error}");
        Failure::usage(message, "send it text in UTF-8").at(field)
    })?;
    Ok(text)
}

/// One call on its way.
struct Errand<'a> {
    rack: &'a Rack,
    target: Meant,
    options: &'a CallOptions,
    surroundings: &'a Surroundings,
}

impl Errand<'_> {
    async fn run(&self, typed: Typed) -> Result<(), Failure> {
        let arguments = self.arguments(typed).await?;
        if self.options.dry_run {
            let (name, arguments) = (json!(self.target.item), Value::Object(arguments));
            self.surroundings.printer.document(&format!(
                r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":{name},"arguments":{arguments}}}}}"#
            ));
            return Ok(());
        }
        let arguments = to_raw_value(&arguments).map_err(io::Error::from)?;
        let result = self.send(&arguments).await?;
        self.show(&result)
    }

    /// The arguments in the shape that the tool asks for.
    async fn arguments(&self, typed: Typed) -> Result<Members, Failure> {
        let Meant { server, item } = &self.target;
        let Some(tool) = self.rack.tool(server, item) else {
            let denied = self.rack.denied(server, item);
            return Err(denied.unwrap_or_else(|| self.no_such_tool()));
        };
        if !self.rack.has_tool(server, item) {
            // It is there and not let through: the manager refuses it and says which rule does.
            self.rack.call((server, item), RawValue::NULL, &Conduct::default()).await?;
        }
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        let check = if self.options.no_check { Check::No } else { Check::Yes };
        shape(typed.object, typed.arguments, Schema::new(&schema), check)
            .map_err(|faults| misshapen(faults, &tool, &schema))
    }

    fn no_such_tool(&self) -> Failure {
        let Meant { server, item } = &self.target;
        let tools = self.rack.tools();
        let names = tools.iter().filter(|it| **it.server() == **server);
        let names: Vec<&str> = names.map(|it| it.tool().name.as_str()).collect();
        let close = meant(&near(item, names.iter().copied()));
        let hint = match names.as_slice() {
            [] => format!("`{server}` has no tools"),
            names => format!("its tools are: {}", plain_text(&names.join(", "), 500)),
        };
        Failure::unknown(format!("`{server}` has no tool `{item}`{close}"), hint)
    }

    async fn send(&self, arguments: &RawValue) -> Result<RawJson, Failure> {
        let Meant { server, item } = &self.target;
        let live = Arc::new(Live::new(&self.surroundings.printer));
        live.phase(&format!("{item}: waiting for the answer"));
        let (reporter, name) = (Arc::clone(&live), item.clone());
        let options = Conduct {
            on_progress: Some(Arc::new(move |progress| reporter.report(&name, progress))),
            ..conduct(&self.options.conduct, self.surroundings)
        };
        live.during(self.rack.call((server, item), arguments, &options)).await
    }

    fn show(&self, raw: &RawJson) -> Result<(), Failure> {
        let printer = &self.surroundings.printer;
        let result = ToolCallResult::parse(raw.as_bytes()).map_err(|error| {
            let message = format!("the result does not fit the protocol: {error}");
            let hint = "look at it with `-o raw`";
            Failure::new(Verdict::ToolFailed, ErrorCode::ServiceUnavailable, message, hint)
        });
        if printer.output() == Output::Raw {
            printer.data(raw.as_bytes());
            printer.data(b"\n");
            let mut files = Files::into(self.options.save.as_deref());
            if let Ok(result) = &result {
                render_content::render_result(result, &mut files)?;
                files.tell(printer);
            }
            let is_error = result.is_ok_and(|it| it.is_error);
            return if is_error { Err(Failure::tool(&self.target.item)) } else { Ok(()) };
        }
        let result = result?;
        let mut files = Files::into(self.options.save.as_deref());
        let text = render_content::render_result(&result, &mut files)?;
        match printer.output() {
            Output::Table if text.is_empty() => printer.note("note: the answer is empty"),
            Output::Table => {
                printer.line(text);
                files.tell_left(printer);
            }
            _ => printer.document(&files.beside(&String::from_utf8_lossy(raw.as_bytes()))),
        }
        if result.is_error { Err(Failure::tool(&self.target.item)) } else { Ok(()) }
    }
}

/// How a request is made: as it was typed, or else as the environment says.
pub(crate) fn conduct(options: &ConductOptions, surroundings: &Surroundings) -> Conduct {
    let timeout = options.timeout(&surroundings.settings);
    Conduct { timeout, at_most: timeout, ..Conduct::default() }
}

/// Everything that is wrong, and what the tool takes.
fn misshapen(faults: Vec<ServiceFault>, tool: &Tool, schema: &Value) -> Failure {
    let takes = plain_text(&signature(Schema::new(schema)), 500);
    let hint = match takes.as_str() {
        "" => format!("`{}` takes no arguments", tool.name),
        takes => format!("`{}` takes: {takes}", tool.name),
    };
    let faults = faults.into_iter().map(|it| it.hint(hint.clone())).collect();
    Failure::all(Verdict::Usage, faults)
}
