//! What servers ask of the user, asked at the terminal.
//!
//! **Invariant:** one question at a time, each shown with the server that asks it. Where nobody can be asked it is
//! declined, and said so. Only what is typed after a question was shown answers it, and nothing typed never means yes.

mod form;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::Semaphore;
use toolrack_client::ClientHandler;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, ElicitationCapability, Field, FormContent,
    FormElicitation, LogMessage, UrlElicitation,
};
use toolrack_transport::{BoxFuture, plain_text};
use url::Url;

use self::form::Answer;
use crate::args::tools::ConductOptions;
use crate::context::Surroundings;
use crate::printer::Printer;
use crate::settings::Talk;

const MOST_CHARS: usize = 1000;
/// How long a thread that reads may go on after nobody wants its line any more.
const LOOK: Duration = Duration::from_millis(100);

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Respondent {
    Person,
    /// The defaults of the form, as `--yes` says.
    Defaults,
    Nobody,
}

/// Asks the user what servers want to know.
#[derive(Debug)]
pub(crate) struct Questions {
    printer: Arc<Printer>,
    respondent: Respondent,
    turn: Semaphore,
}

impl Questions {
    pub(crate) fn new(surroundings: &Surroundings, conduct: &ConductOptions) -> Self {
        let Surroundings { settings, printer, .. } = surroundings;
        let respondent = match (conduct.yes, settings.terminal.has_person()) {
            (true, _) => Respondent::Defaults,
            (false, true) => Respondent::Person,
            (false, false) => Respondent::Nobody,
        };
        Self { printer: Arc::clone(printer), respondent, turn: Semaphore::new(1) }
    }

    async fn answer(&self, server: &str, question: Elicitation) -> ElicitationAnswer {
        // Nobody closes the semaphore, so there is always a turn.
        let _turn = self.turn.acquire().await;
        let _pause = self.printer.pause_live();
        match (self.respondent, question) {
            (_, Elicitation::Url(page)) if let Some(why) = unfit(&page.url) => {
                let url = plain_text(&page.url, MOST_CHARS);
                self.printer.note(format_args!(
                    "note: `{server}` wants a page to be opened, which is declined because {why}: {url}"
                ));
                ElicitationAnswer::Decline
            }
            (Respondent::Nobody, question) => {
                let asked = plain_text(question.message(), MOST_CHARS);
                self.printer.note(format_args!(
                    "note: `{server}` asks: {asked}\nnote: declined, because there is no terminal to \
                     answer at; `--yes` answers with defaults"
                ));
                ElicitationAnswer::Decline
            }
            (Respondent::Defaults, Elicitation::Form(form)) => self.defaults(server, &form),
            (Respondent::Defaults, Elicitation::Url(page)) => {
                let url = plain_text(&page.url, MOST_CHARS);
                self.printer.note(format_args!(
                    "note: `{server}` wants a page to be opened, which `--yes` does not do: {url}"
                ));
                ElicitationAnswer::Decline
            }
            (Respondent::Person, Elicitation::Form(form)) => {
                self.fill_in(server, &form).await.unwrap_or(ElicitationAnswer::Cancel)
            }
            (Respondent::Person, Elicitation::Url(page)) => {
                self.open_page(server, &page).await.unwrap_or(ElicitationAnswer::Cancel)
            }
        }
    }

    fn defaults(&self, server: &str, form: &FormElicitation) -> ElicitationAnswer {
        let mut content = FormContent::new();
        form.schema.fill_defaults(&mut content);
        if let Err(faults) = form.schema.validate(&content) {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let why = plain_text(&faults.join(", "), MOST_CHARS);
            self.printer.note(format_args!(
                "note: `{server}` asks for something that has no default, so it is declined: {why}"
            ));
            return ElicitationAnswer::Decline;
        }
        ElicitationAnswer::Accept { content: Some(content) }
    }

    /// `None` if the user left in the middle.
    async fn fill_in(&self, server: &str, form: &FormElicitation) -> Option<ElicitationAnswer> {
        let asked = plain_text(&form.message, MOST_CHARS);
        forget_typed();
        self.printer.ask(format_args!("`{server}` asks: {asked}\n"));
        match self.consent("Answer? [y]es, [N]o, [c]ancel: ").await? {
            Consent::Yes => {}
            Consent::No => return Some(ElicitationAnswer::Decline),
            Consent::Cancel => return Some(ElicitationAnswer::Cancel),
        }
        let mut content = FormContent::new();
        for field in form.schema.fields() {
            if let Some(value) = self.fill(form, field).await? {
                content.insert(field.name.clone(), value);
            }
        }
        Some(ElicitationAnswer::Accept { content: Some(content) })
    }

    /// Asks for one field until the answer can be sent.
    async fn fill(&self, form: &FormElicitation, field: &Field) -> Option<Answer> {
        loop {
            forget_typed();
            self.printer.ask(form::prompt(field));
            let typed = read_line().await?;
            match form::read(&form.schema, field, typed.trim()) {
                Ok(answer) => return Some(answer),
                Err(why) => self.printer.ask(format_args!("  {why}\n")),
            }
        }
    }

    async fn open_page(&self, server: &str, page: &UrlElicitation) -> Option<ElicitationAnswer> {
        let asked = plain_text(&page.message, MOST_CHARS);
        let url = plain_text(&page.url, MOST_CHARS);
        forget_typed();
        self.printer.ask(format_args!(
            "`{server}` asks: {asked}\nIt wants you to open this page in your browser:\n  {url}\n"
        ));
        Some(match self.consent("Will you? [y]es, [N]o, [c]ancel: ").await? {
            Consent::Yes => ElicitationAnswer::Accept { content: None },
            Consent::No => ElicitationAnswer::Decline,
            Consent::Cancel => ElicitationAnswer::Cancel,
        })
    }

    async fn consent(&self, prompt: &str) -> Option<Consent> {
        loop {
            self.printer.ask(prompt);
            if let Some(consent) = Consent::read(&read_line().await?) {
                return Some(consent);
            }
        }
    }
}

/// What was said to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consent {
    Yes,
    No,
    Cancel,
}

impl Consent {
    fn read(typed: &str) -> Option<Self> {
        match typed.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Some(Self::Yes),
            "" | "n" | "no" => Some(Self::No),
            "c" | "cancel" => Some(Self::Cancel),
            _ => None,
        }
    }
}

/// Why nobody is sent to an address, if that is so.
fn unfit(address: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(address) else { return Some("its address cannot be read") };
    if !matches!(url.scheme(), "http" | "https") {
        return Some("its address is not one of the web (`https:`)");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("its address holds a user name, which can make it look like another one");
    }
    None
}

impl ClientHandler for Questions {
    fn capabilities(&self) -> ClientCapabilities {
        let elicitation = ElicitationCapability { form: true, url: true };
        ClientCapabilities { elicitation: Some(elicitation), ..ClientCapabilities::default() }
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        question: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(self.answer(server, question))
    }

    fn log(&self, message: &LogMessage) {
        if self.printer.talk() == Talk::Verbose {
            let said = plain_text(message.data.get(), MOST_CHARS);
            self.printer.relay(format_args!("log: {said}"));
        }
    }
}

/// The next line that is typed. `None` at the end of the input. When nobody waits any more, the thread that reads
/// notices soon and ends.
pub(crate) async fn read_line() -> Option<String> {
    let wanted = Arc::new(AtomicBool::new(true));
    let _unwanted = Unwanted(Arc::clone(&wanted));
    tokio::task::spawn_blocking(move || {
        while wanted.load(Ordering::Relaxed) {
            if is_typed() {
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

/// Throws away what was typed before a question is shown. It was meant for something else.
fn forget_typed() {
    // What is no terminal has nothing typed.
    tcflush(std::io::stdin(), QueueSelector::IFlush).unwrap_or_default();
}

/// Whether there is a line to read, after a short wait.
fn is_typed() -> bool {
    let stdin = std::io::stdin();
    let mut ends = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(LOOK).ok();
    poll(&mut ends, wait.as_ref()).is_ok_and(|n_ready| n_ready > 0)
}

/// Tells the thread that reads that nobody waits any more.
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_a_strange_address() {
        let check = |address: &str, fits: bool| {
            assert_eq!(unfit(address).is_none(), fits, "{address}");
        };
        check("https://example.com/pay?id=7", true);
        check("http://127.0.0.1:8080/", true);
        check("javascript:alert(1)", false);
        check("file:///etc/passwd", false);
        check("https://bank.example@evil.example/", false);
        check("https://:x@evil.example/", false);
        check("data:text/html,x", false);
        check("nonsense", false);
        check("", false);
    }

    #[test]
    fn nothing_typed_is_no_consent() {
        let check = |typed: &str, expected| assert_eq!(Consent::read(typed), expected, "{typed:?}");
        check("\n", Some(Consent::No));
        check("Y\n", Some(Consent::Yes));
        check("c\n", Some(Consent::Cancel));
        check("what\n", None);
    }
}
