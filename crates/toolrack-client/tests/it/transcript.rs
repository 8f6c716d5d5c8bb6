//! A transcript as data: what the driver does, and what the client is seen to do after it.

/// One thing the driver does, with everything that follows it.
#[derive(Debug)]
pub(crate) struct Scene {
    /// Comments and blank lines before it, as written.
    pub(crate) before: Vec<String>,
    pub(crate) input: Input,
    /// What the client must be seen to do: `> …` and `= …`.
    pub(crate) expected: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Input {
    /// `< …`: the server says something.
    Say(String),
    /// `! …`: the driver does something.
    Act(String),
}

/// A whole transcript.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) scenes: Vec<Scene>,
    /// Comments and blank lines at the end.
    after: Vec<String>,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Script {
        let mut scenes: Vec<Scene> = Vec::new();
        let mut before = Vec::new();
        for line in text.lines() {
            let rest = || line.get(2..).unwrap_or_default().to_owned();
            let input = match line.get(..1) {
                None | Some("#") => {
                    before.push(line.to_owned());
                    continue;
                }
                Some("<") => Input::Say(rest()),
                Some("!") => Input::Act(rest()),
                Some(">" | "=") => {
                    let scene =
                        scenes.last_mut().expect("something happens before the first output");
                    scene.expected.push(line.to_owned());
                    continue;
                }
                Some(_) => panic!("not a line of a transcript: {line}"),
            };
            scenes.push(Scene { before: std::mem::take(&mut before), input, expected: Vec::new() });
        }
        Script { scenes, after: before }
    }

    /// The transcript with what was seen in place of what was expected.
    pub(crate) fn rewritten(&self, seen: &[Vec<String>]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (scene, seen) in self.scenes.iter().zip(seen) {
            lines.extend(scene.before.iter().cloned());
            lines.push(match &scene.input {
                Input::Say(text) => format!("< {text}"),
                Input::Act(text) => format!("! {text}"),
            });
            lines.extend(seen.iter().cloned());
        }
        lines.extend(self.after.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// A word, the JSON after it, and the `key=value` words and flags after that.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) plain: Vec<String>,
    pub(crate) json: Option<serde_json::Value>,
}

impl Words {
    pub(crate) fn parse(text: &str) -> Words {
        let mut words = Words::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if rest.starts_with('{') {
                let mut values = serde_json::Deserializer::from_str(rest).into_iter();
                let value = values.next().expect("a value").expect("JSON");
                rest = rest.get(values.byte_offset()..).unwrap_or_default().trim();
                words.json = Some(value);
                continue;
            }
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            words.plain.push(word.to_owned());
            rest = after.trim();
        }
        words
    }

    /// The word at a place.
    pub(crate) fn word(&self, place: usize) -> &str {
        self.plain.get(place).map_or("", String::as_str)
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

/// `200ms` or `30s`.
pub(crate) fn duration(text: &str) -> std::time::Duration {
    let number = |digits: &str| digits.parse().unwrap_or_else(|_| panic!("not a time: {text}"));
    match text.strip_suffix("ms") {
        Some(digits) => std::time::Duration::from_millis(number(digits)),
        None => std::time::Duration::from_secs(number(text.strip_suffix('s').unwrap_or(text))),
    }
}
