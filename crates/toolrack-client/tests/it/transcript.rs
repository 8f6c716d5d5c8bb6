//! Transcript parser: inputs, and the lines the client must produce after each.

/// One input and its expected output.
#[derive(Debug)]
pub(crate) struct Step {
    /// Comments and blank lines before it, as written.
    pub(crate) before: Vec<String>,
    pub(crate) input: Input,
    /// Expected output: `> …` and `= …`.
    pub(crate) expected: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Input {
    /// `< …`: a server message.
    ServerMessage(String),
    /// `! …`: a fixture action.
    Action(String),
}

/// A parsed transcript.
#[derive(Debug)]
pub(crate) struct Transcript {
    pub(crate) steps: Vec<Step>,
    /// Comments and blank lines at the end.
    after: Vec<String>,
}

impl Transcript {
    pub(crate) fn parse(text: &str) -> Transcript {
        let mut steps: Vec<Step> = Vec::new();
        let mut before = Vec::new();
        for line in text.lines() {
            let rest = || line.get(2..).unwrap_or_default().to_owned();
            let input = match line.get(..1) {
                None | Some("#") => {
                    before.push(line.to_owned());
                    continue;
                }
                Some("<") => Input::ServerMessage(rest()),
                Some("!") => Input::Action(rest()),
                Some(">" | "=") => {
                    let step = steps.last_mut().expect("an input precedes the first output");
                    step.expected.push(line.to_owned());
                    continue;
                }
                Some(_) => panic!("invalid transcript line: {line}"),
            };
            steps.push(Step { before: std::mem::take(&mut before), input, expected: Vec::new() });
        }
        Transcript { steps, after: before }
    }

    /// The transcript with the observed output in place of the expected.
    pub(crate) fn with_observed(&self, observed: &[Vec<String>]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (step, observed) in self.steps.iter().zip(observed) {
            lines.extend(step.before.iter().cloned());
            lines.push(match &step.input {
                Input::ServerMessage(text) => format!("< {text}"),
                Input::Action(text) => format!("! {text}"),
            });
            lines.extend(observed.iter().cloned());
        }
        lines.extend(self.after.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// Action name, its words and `key=value` options, and its JSON argument.
#[derive(Debug, Default)]
pub(crate) struct ActionArgs {
    pub(crate) plain: Vec<String>,
    pub(crate) json: Option<serde_json::Value>,
}

impl ActionArgs {
    pub(crate) fn parse(text: &str) -> ActionArgs {
        let mut args = ActionArgs::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if rest.starts_with('{') {
                let mut values = serde_json::Deserializer::from_str(rest).into_iter();
                let value = values.next().expect("a value").expect("JSON");
                rest = rest.get(values.byte_offset()..).unwrap_or_default().trim();
                args.json = Some(value);
                continue;
            }
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            args.plain.push(word.to_owned());
            rest = after.trim();
        }
        args
    }

    /// The word at `index`.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.plain.get(index).map_or("", String::as_str)
    }

    /// The value of `key=…`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.plain.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.plain.iter().any(|word| word == flag)
    }

    pub(crate) fn duration(&self, key: &str) -> Option<std::time::Duration> {
        self.value(key).map(duration)
    }
}

/// Parses `200ms` or `30s`.
pub(crate) fn duration(text: &str) -> std::time::Duration {
    let number =
        |digits: &str| digits.parse().unwrap_or_else(|_| panic!("invalid duration: {text}"));
    match text.strip_suffix("ms") {
        Some(digits) => std::time::Duration::from_millis(number(digits)),
        None => std::time::Duration::from_secs(number(text.strip_suffix('s').unwrap_or(text))),
    }
}
