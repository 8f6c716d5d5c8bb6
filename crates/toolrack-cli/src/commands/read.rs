//! `toolrack read`: what a resource holds.

use crate::args::list::ReadOptions;
use crate::commands::call::conduct;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::Output;
use crate::progress::Live;
use crate::render_content;
use crate::save::Files;
use crate::server_selection::{Kind, Servers};
use crate::server_session::{Rack, with_rack};

/// Reads a resource and shows it.
pub(crate) async fn read(options: ReadOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let servers = Servers::find(&options.target, &surroundings.settings, printer)?;
    let (server, uri) = meant(&options.words, &servers)?;
    let servers = servers.keep(|it| it == server);
    with_rack(servers, &options.conduct, surroundings, async |rack: &Rack| {
        let connection = rack.connect(&server).await?;
        let Some(client) = connection.client() else { return Err(Failure::interrupted()) };
        let live = Live::new(printer);
        live.phase(&format!("{server}: reading"));
        let how = conduct(&options.conduct, surroundings);
        let reading = async { Ok(client.read_resource(&uri, &how).await?) };
        let result = live.during(rack.attended(&server, reading)).await?;
        drop(live);
        if !result.skipped.is_empty() {
            let n = result.skipped.len();
            printer.note(format_args!("note: {n} parts cannot be read and are left out"));
        }
        let mut files = Files::into(options.save.as_deref());
        let mut texts = Vec::new();
        for part in &result.contents {
            texts.push(render_content::of_resource(part, &mut files)?);
        }
        match printer.output() {
            Output::Table => {
                printer.line(texts.join("\n"));
                files.tell_left(printer);
            }
            _ => {
                // It was read from JSON, so it can be written as JSON.
                let contents = serde_json::to_string(&result.contents).unwrap_or_default();
                printer.document(&files.beside(&format!(r#"{{"contents":{contents}}}"#)));
            }
        }
        Ok(())
    })
    .await
}

/// The server and the address.
fn meant(words: &[String], servers: &Servers) -> Result<(String, String), Failure> {
    match (servers.kind, words) {
        (Kind::Configured, [server, uri]) => {
            servers.server(server)?;
            Ok((server.clone(), uri.clone()))
        }
        (Kind::Configured, [uri]) => match servers.only() {
            Some(only) => Ok((only.name.clone(), uri.clone())),
            None if servers.configs.is_empty() => Err(Servers::nobody()),
            None => {
                let names: Vec<&str> = servers.names().collect();
                let hint = format!(
                    "write `toolrack read SERVER URI`; the servers are: {}",
                    names.join(", ")
                );
                Err(Failure::usage("it is not said which server has it", hint))
            }
        },
        (Kind::Typed, [uri]) => {
            Ok((servers.names().next().unwrap_or_default().to_owned(), uri.clone()))
        }
        _ => Err(Failure::usage(
            "a server of the config and another one are named",
            "leave one of them out",
        )),
    }
}
