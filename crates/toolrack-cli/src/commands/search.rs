//! `toolrack search`: tools by words, over all servers.

use toolrack_manager::{McpConnection, ToolWithServer};

use crate::args::tools::{ConductOptions, SearchOptions};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::server_selection::{Kind, Servers};
use crate::server_session::{Rack, with_rack};
use crate::{fan_out, tool_list, unlisted_servers};

/// Finds tools whose name or description has all the words.
pub(crate) async fn search(
    options: SearchOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let servers = Servers::configured(&surroundings.settings, printer)?;
    if servers.configs.is_empty() {
        return Err(Servers::none());
    }
    with_rack(servers, &ConductOptions::default(), surroundings, async |rack: &Rack| {
        let (roll, absent) = if options.live {
            (Some(fan_out::call(rack, async |_: &McpConnection| Ok(())).await), Vec::new())
        } else {
            (None, rack.recall().await?)
        };
        let found = found(&rack.tools(), &options.words);
        if found.is_empty() {
            printer.note("note: no tool has all these words");
        }
        printer.list(&tool_list::list(&found, Kind::Configured));
        match roll {
            Some(roll) => roll.close(printer),
            None => {
                unlisted_servers::note(&absent, printer);
                Ok(())
            }
        }
    })
    .await
}

/// Those that have all the words, best first: words in the name count more than in the description.
fn found(tools: &[ToolWithServer], words: &[String]) -> Vec<ToolWithServer> {
    let words: Vec<String> = words.iter().map(|it| it.to_lowercase()).collect();
    let mut found: Vec<(usize, &ToolWithServer)> = tools
        .iter()
        .filter_map(|it| {
            let name = format!("{}.{}", it.server(), it.tool().name);
            let about = it.tool().description.as_deref().unwrap_or_default();
            Some((score(&name, about, &words)?, it))
        })
        .collect();
    found.sort_by(|one, two| two.0.cmp(&one.0).then(one.1.name().cmp(two.1.name())));
    found.into_iter().map(|(_, tool)| tool.clone()).collect()
}

/// How well a tool fits. `None` if a word is missing.
fn score(name: &str, about: &str, words: &[String]) -> Option<usize> {
    let (name, about) = (name.to_lowercase(), about.to_lowercase());
    let hit = |word: &String| match (name.contains(word), about.contains(word)) {
        (true, _) => Some(2),
        (false, true) => Some(1),
        (false, false) => None,
    };
    words.iter().map(hit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], expected: Option<usize>) {
        let words: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(score("git.create_issue", "Opens an issue in a project", &words), expected);
    }

    #[test]
    fn every_word_counts_and_names_count_double() {
        check(&["issue"], Some(2));
        check(&["opens"], Some(1));
        check(&["git", "project"], Some(3));
        check(&["issue", "delete"], None);
    }
}
