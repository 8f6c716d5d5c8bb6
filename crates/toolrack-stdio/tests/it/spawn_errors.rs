//! Every way to give a server wrongly has its own clear error, and leaves nothing running.

use toolrack_stdio::{McpServerDef, StdioTransport};
use toolrack_transport::TransportError;

use crate::fixture::{guarded, program};

/// Starts the server and gives the text of the error, with its cause behind a colon.
async fn refusal(definition: McpServerDef) -> String {
    let error = StdioTransport::spawn_with(&definition, guarded()).await.map(drop).unwrap_err();
    let TransportError::Spawn(fault) = error else { panic!("{error:?}") };
    match std::error::Error::source(&fault) {
        Some(cause) => format!("{fault}: {cause}"),
        None => fault.to_string(),
    }
}

#[tokio::test]
async fn a_missing_program_is_named_with_the_path_searched() {
    let mut definition = program("no-such-program", &[]);
    definition.env.insert("PATH".to_owned(), "/opt/none:/usr/bin".to_owned());
    assert_eq!(
        refusal(definition).await,
        "program `no-such-program` was not found in PATH (/opt/none:/usr/bin)"
    );
    assert_eq!(
        refusal(program("/no/such/program", &[])).await,
        "program `/no/such/program` does not exist"
    );
}

#[tokio::test]
async fn what_cannot_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        refusal(program(&format!("{}/", dir.path().display()), &[])).await,
        format!("`{}/` is not an executable program", dir.path().display())
    );
    let script = dir.path().join("broken");
    std::fs::copy("/bin/true", &script).unwrap();
    // Keeps the permission bits and is no program for any machine.
    let file = std::fs::File::create(&script).unwrap();
    drop(file);
    std::fs::copy("/proc/self/cmdline", &script).unwrap();
    let text = refusal(program(&script.display().to_string(), &[])).await;
    assert!(text.contains("could not be run") || text.contains("not an executable"), "{text}");
}

#[tokio::test]
async fn a_bad_directory_is_named() {
    let definition = McpServerDef { cwd: Some("/no/such/dir".into()), ..program("cat", &[]) };
    assert_eq!(
        refusal(definition).await,
        "working directory `/no/such/dir` does not exist or is not a directory"
    );
}

#[tokio::test]
async fn a_zero_byte_is_named() {
    assert_eq!(
        refusal(program("cat", &["fine", "a\0b"])).await,
        "args[1] holds a zero byte, which no program can be given"
    );
}

#[tokio::test]
async fn a_guardian_that_is_none_is_an_error_and_not_a_wait() {
    let mut options = guarded();
    options.guardian = toolrack_stdio::Guardian::Program("/bin/true".into());
    let error = StdioTransport::spawn_with(&program("cat", &[]), options).await.unwrap_err();
    assert_eq!(error.to_string(), "the guardian process could not be started");
}
