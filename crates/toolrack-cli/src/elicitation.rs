//! Terminal elicitation: prompts the user for what servers request.
//!
//! **Invariant:** one prompt at a time, each with the server's name. Without a terminal the request
//! is declined, with a note. Only input typed after the prompt counts, and empty input never means
//! yes.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::Number;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolrack_client::ClientHandler;
use toolrack_mcp::{
    Choice, ClientCapabilities, Elicitation, ElicitationCapability, ElicitationResult, Field,
    FieldKind, FieldValue, FormContent, FormElicitation, FormSchema, LogMessage, UrlElicitation,
    WebUrl,
};
use toolrack_transport::{BoxFuture, sanitize_line};

use crate::args::RequestOptions;
use crate::commands::Context;
use crate::printer::Printer;
use crate::settings::Verbosity;

const MAX_CHARS: usize = 1000;
/// How soon the reading thread notices that it is no longer needed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Where answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerSource {
    Person,
    /// The defaults of the form (`--yes`).
    Defaults,
    None,
}

/// Handler of elicitation requests.
#[derive(Debug)]
pub(crate) struct ElicitationHandler {
    printer: Arc<Printer>,
    answer_source: AnswerSource,
    turn: Semaphore,
}

impl ElicitationHandler {
    pub(crate) fn new(context: &Context, request: &RequestOptions) -> Self {
        let Context { settings, printer, .. } = context;
        let answer_source = match (request.yes, settings.streams.is_interactive()) {
            // Also on a terminal: `--yes` promises not to ask.
            (true, _) => AnswerSource::Defaults,
            (false, true) => AnswerSource::Person,
            (false, false) => AnswerSource::None,
        };
        Self { printer: Arc::clone(printer), answer_source, turn: Semaphore::new(1) }
    }

    async fn answer(&self, server: &str, elicitation: Elicitation) -> ElicitationResult {
        // The semaphore is never closed, so this always succeeds.
        let _turn = self.turn.acquire().await;
        // After the turn: the end of the other prompt's pause would show the progress lines again.
        let _pause = self.printer.pause_progress();
        let note = match (self.answer_source, elicitation) {
            // First, and for every source: a suspicious URL is not even offered to the user.
            (_, Elicitation::Url(page)) if let Err(reason) = WebUrl::parse(&page.url) => {
                let url = sanitize_line(&page.url, MAX_CHARS);
                format!("`{server}` asks to open a page; declined, because {reason}: {url}")
            }
            (AnswerSource::None, elicitation) => {
                let message = sanitize_line(elicitation.message(), MAX_CHARS);
                format!(
                    "`{server}` asks: {message}\nnote: declined, because there is no terminal; use \
                     `--yes` to answer with defaults"
                )
            }
            (AnswerSource::Defaults, Elicitation::Form(form)) => {
                let mut content = FormContent::new();
                form.schema.fill_defaults(&mut content);
                let Err(errors) = form.schema.validate(&content) else {
                    return ElicitationResult::Accept { content: Some(content) };
                };
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let reason = sanitize_line(&errors.join(", "), MAX_CHARS);
                format!(
                    "`{server}` asks for a value without a default, so it was declined: {reason}"
                )
            }
            (AnswerSource::Defaults, Elicitation::Url(page)) => {
                let url = sanitize_line(&page.url, MAX_CHARS);
                format!("`{server}` asks to open a page, which `--yes` does not do: {url}")
            }
            (AnswerSource::Person, Elicitation::Form(form)) => {
                // The end of the input is not a refusal: the user may have closed the terminal.
                return self.fill_form(server, &form).await.unwrap_or(ElicitationResult::Cancel);
            }
            (AnswerSource::Person, Elicitation::Url(page)) => {
                let request = page_request(server, &page);
                let consent = self.ask_consent(&request, "Continue?").await;
                return consent.unwrap_or(ElicitationResult::Cancel);
            }
        };
        self.printer.note(format_args!("note: {note}"));
        ElicitationResult::Decline
    }

    /// Fills in a form. `None` if the input ended.
    async fn fill_form(&self, server: &str, form: &FormElicitation) -> Option<ElicitationResult> {
        let message = sanitize_line(&form.message, MAX_CHARS);
        // Fields have defaults, so without this question Enter alone would submit the form.
        let answer = self.ask_consent(&format!("`{server}` asks: {message}\n"), "Answer?").await?;
        if !matches!(answer, ElicitationResult::Accept { .. }) {
            return Some(answer);
        }
        let mut content = FormContent::new();
        for field in form.schema.fields() {
            let value = loop {
                discard_typed_input();
                self.printer.prompt(field_prompt(field));
                let typed = read_line().await?;
                match parse_answer(&form.schema, field, typed.trim()) {
                    Ok(value) => break value,
                    Err(reason) => self.printer.prompt(format_args!("  {reason}\n")),
                }
            };
            content.extend(value.map(|value| (field.name.clone(), value)));
        }
        Some(ElicitationResult::Accept { content: Some(content) })
    }

    /// Shows a request, and asks until the answer is valid. `None` if the input ended.
    async fn ask_consent(&self, request: &str, question: &str) -> Option<ElicitationResult> {
        discard_typed_input();
        self.printer.prompt(request);
        loop {
            self.printer.prompt(format_args!("{question} [y]es, [N]o, [c]ancel: "));
            if let Some(consent) = parse_consent(&read_line().await?) {
                return Some(consent);
            }
        }
    }
}

/// The text that asks the user to open a page. The address is shown in full, as a browser reads it.
fn page_request(server: &str, page: &UrlElicitation) -> String {
    let message = sanitize_line(&page.message, MAX_CHARS);
    let Ok(url) = WebUrl::parse(&page.url) else { return String::new() };
    let note = url.host_note().map(|note| format!("note: {note}\n")).unwrap_or_default();
    format!("`{server}` asks: {message}\nOpen this page in your browser:\n  {url}\n{note}")
}

/// The answer to a yes/no/cancel prompt.
fn parse_consent(typed: &str) -> Option<ElicitationResult> {
    match typed.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(ElicitationResult::Accept { content: None }),
        "" | "n" | "no" => Some(ElicitationResult::Decline),
        "c" | "cancel" => Some(ElicitationResult::Cancel),
        _ => None,
    }
}

impl ClientHandler for ElicitationHandler {
    fn capabilities(&self) -> ClientCapabilities {
        let elicitation = ElicitationCapability { form: true, url: true };
        ClientCapabilities { elicitation: Some(elicitation), ..ClientCapabilities::default() }
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        elicitation: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(self.answer(server, elicitation))
    }

    fn log(&self, message: &LogMessage) {
        if self.printer.verbosity == Verbosity::Verbose {
            let data = sanitize_line(message.data.get(), MAX_CHARS);
            self.printer.note(format_args!("log: {data}"));
        }
    }
}

/// Reads a line from stdin. `None` at EOF.
///
/// # Cancel safety
///
/// If dropped, the reading thread stops at its next poll, so it does not take the next line.
pub(crate) async fn read_line() -> Option<String> {
    let wait = Timespec::try_from(POLL_INTERVAL).ok();
    let unwanted = CancellationToken::new();
    let _cancel_on_drop = unwanted.clone().drop_guard();
    // Not `tokio::io::stdin`: its thread cannot be stopped, and would take the next line
    // that is typed.
    tokio::task::spawn_blocking(move || {
        while !unwanted.is_cancelled() {
            // A blocking read could not notice that the server has withdrawn its request.
            let stdin = std::io::stdin();
            let mut ends = [PollFd::new(&stdin, PollFlags::IN)];
            if poll(&mut ends, wait.as_ref()).is_ok_and(|n_ready| n_ready > 0) {
                let mut line = String::new();
                let n_bytes = std::io::stdin().read_line(&mut line).unwrap_or_default();
                return (n_bytes > 0).then_some(line);
            }
        }
        None
    })
    .await
    .unwrap_or_default()
}

/// Discards input typed before the prompt was shown; it was meant for something else.
fn discard_typed_input() {
    // Without a terminal there is nothing to discard.
    tcflush(std::io::stdin(), QueueSelector::IFlush).unwrap_or_default();
}

const MAX_FIELD_CHARS: usize = 200;

/// The prompt of a field.
fn field_prompt(field: &Field) -> String {
    let shown = |text: &str| sanitize_line(text, MAX_FIELD_CHARS);
    let name = shown(field.display_name());
    let about = field.description.as_ref().map(|about| format!(" ({})", shown(about)));
    let options = match &field.kind {
        FieldKind::Choice { options } | FieldKind::MultiChoice { options, .. } => {
            let numbered = (1..).zip(options);
            let lines = numbered.map(|(n, option)| format!("\n    {n}. {}", shown(&option.title)));
            lines.chain(["\n   ".to_owned()]).collect()
        }
        _ => String::new(),
    };
    let default = match (&field.default, field.required) {
        (Some(default), _) => format!(" [{}]", shown(&display_value(default.clone()))),
        (None, true) => String::new(),
        (None, false) => " (optional)".to_owned(),
    };
    let kind = match &field.kind {
        FieldKind::Boolean => " y/n",
        FieldKind::Number { is_integer: false, .. } => " number",
        FieldKind::Number { is_integer: true, .. } => " integer",
        FieldKind::MultiChoice { .. } => " comma-separated numbers",
        _ => "",
    };
    format!("  {name}{}{options}{default}{kind}: ", about.unwrap_or_default())
}

/// Parses an answer. Empty input means the default, or omits the field (`None`). The error is the
/// message for the user.
fn parse_answer(
    form: &FormSchema,
    field: &Field,
    typed: &str,
) -> Result<Option<FieldValue>, String> {
    let answer = match typed {
        "" => field.default.clone(),
        typed => Some(parse_value(&field.kind, typed)?),
    };
    let content = answer.iter().map(|value| (field.name.clone(), value.clone())).collect();
    // The whole schema checks a form with one field, so errors about missing other fields
    // are ignored below.
    let error_details = form.validate(&content).err().unwrap_or_default();
    match error_details.into_iter().find(|error_detail| error_detail.field == field.name) {
        Some(error_detail) => Err(sanitize_line(&error_detail.kind.to_string(), MAX_FIELD_CHARS)),
        None => Ok(answer),
    }
}

fn parse_value(kind: &FieldKind, typed: &str) -> Result<FieldValue, String> {
    match kind {
        FieldKind::Boolean => match typed.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(FieldValue::Boolean(true)),
            "n" | "no" | "false" => Ok(FieldValue::Boolean(false)),
            _ => Err("type y or n".to_owned()),
        },
        FieldKind::Number { is_integer: true, .. } => {
            let number = typed.parse::<i64>().map(Number::from);
            number.map(FieldValue::Number).map_err(|_no_number| "type an integer".to_owned())
        }
        FieldKind::Number { is_integer: false, .. } => {
            let number = typed.parse::<Number>();
            number.map(FieldValue::Number).map_err(|_no_number| "type a number".to_owned())
        }
        FieldKind::Choice { options } => parse_choice(options, typed).map(FieldValue::Text),
        FieldKind::MultiChoice { options, .. } => {
            let all: Result<Vec<String>, String> =
                typed.split(',').map(|choice| parse_choice(options, choice.trim())).collect();
            all.map(FieldValue::List)
        }
        FieldKind::Text { .. } | FieldKind::Other(_) => Ok(FieldValue::Text(typed.to_owned())),
    }
}

/// An option by its value, title or number.
fn parse_choice(options: &[Choice], typed: &str) -> Result<String, String> {
    let numbered =
        typed.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
    let named = || options.iter().find(|option| option.value == typed || option.title == typed);
    // The value first: an option may be a number itself.
    let option = named().or(numbered).map(|option| option.value.clone());
    option.ok_or_else(|| format!("type a number from 1 to {}", options.len()))
}

fn display_value(value: FieldValue) -> String {
    match value {
        FieldValue::Text(text) => text,
        FieldValue::List(list) => list.join(", "),
        FieldValue::Boolean(true) => "y".to_owned(),
        FieldValue::Boolean(false) => "n".to_owned(),
        FieldValue::Number(number) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_shown_with_its_host_in_ascii() {
        let page = UrlElicitation {
            message: "Pay\u{1b}[8m".to_owned(),
            url: "https://\u{430}pple.com/pay".to_owned(),
            elicitation_id: None,
        };
        assert_eq!(
            page_request("shop", &page),
            "`shop` asks: Pay\nOpen this page in your browser:\n  https://xn--pple-43d.com/pay\n\
             note: the host `xn--pple-43d.com` has letters that are not ASCII and may imitate \
             another host\n"
        );
    }

    #[test]
    fn empty_answer_is_no() {
        let check = |typed: &str, expected| assert_eq!(parse_consent(typed), expected, "{typed:?}");
        check("\n", Some(ElicitationResult::Decline));
        check("Y\n", Some(ElicitationResult::Accept { content: None }));
        check("c\n", Some(ElicitationResult::Cancel));
        check("what\n", None);
    }

    fn form() -> FormSchema {
        serde_json::from_str(
            r#"{"properties": {
                "name": {"type": "string", "description": "Your \u001b[1mname", "minLength": 2},
                "age": {"type": "integer", "minimum": 1, "default": 30},
                "ok": {"type": "boolean", "default": true},
                "size": {"type": "string", "enum": ["s", "m"]},
                "ratio": {"type": "number"}
            }, "required": ["name", "size"]}"#,
        )
        .unwrap()
    }

    fn field<'a>(form: &'a FormSchema, name: &str) -> &'a Field {
        form.fields().iter().find(|field| field.name == name).unwrap()
    }

    #[track_caller]
    fn check(name: &str, typed: &str, expected: Result<&str, &str>) {
        let form = form();
        let answer = parse_answer(&form, field(&form, name), typed);
        let answer = answer.map(|answer| serde_json::to_string(&answer).unwrap());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(answer, expected, "{name}: {typed:?}");
    }

    #[test]
    fn answers_are_parsed_by_field_type() {
        check("name", "Ada", Ok("\"Ada\""));
        check("name", "A", Err("too short"));
        check("name", "", Err("required"));
        check("age", "", Ok("30"));
        check("age", "7", Ok("7"));
        check("age", "0", Err("too small"));
        check("age", "old", Err("type an integer"));
        check("ok", "", Ok("true"));
        check("ok", "N", Ok("false"));
        check("ok", "maybe", Err("type y or n"));
        check("size", "2", Ok("\"m\""));
        check("size", "s", Ok("\"s\""));
        check("size", "3", Err("type a number from 1 to 2"));
        check("ratio", "", Ok("null"));
        check("ratio", "0.5", Ok("0.5"));
    }

    #[test]
    fn field_prompts() {
        let form = form();
        let message = |name: &str| field_prompt(field(&form, name));
        assert_eq!(message("name"), "  name (Your name): ");
        assert_eq!(message("age"), "  age [30] integer: ");
        assert_eq!(message("ok"), "  ok [y] y/n: ");
        assert_eq!(message("size"), "  size\n    1. s\n    2. m\n   : ");
        assert_eq!(message("ratio"), "  ratio (optional) number: ");
    }
}
