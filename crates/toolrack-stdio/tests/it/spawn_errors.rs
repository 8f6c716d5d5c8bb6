//! Every invalid server definition has its own error and leaves no process behind.

use toolrack_stdio::{McpServerDef, StdioTransport};
use toolrack_transport::TransportError;

use crate::fixture::{guarded, program};

/// Starts the server and returns the error text, with its cause after a colon.
async fn spawn_error(definition: McpServerDef) -> String {
    let error = StdioTransport::spawn_with(&definition, guarded()).await.map(drop).unwrap_err();
    let TransportError::Spawn(error) = error else { panic!("{error:?}") };
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[tokio::test]
async fn missing_program_error_names_the_searched_path() {
    let mut definition = program("no-such-program", &[]);
    definition.env.insert("PATH".to_owned(), "/opt/none:/usr/bin".to_owned());
    assert_eq!(
        spawn_error(definition).await,
        "program `no-such-program` not found in PATH (/opt/none:/usr/bin)"
    );
    assert_eq!(
        spawn_error(program("/no/such/program", &[])).await,
        "program `/no/such/program` does not exist"
    );
}

#[tokio::test]
async fn unexecutable_program_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        spawn_error(program(&format!("{}/", dir.path().display()), &[])).await,
        format!("`{}/` is not an executable program", dir.path().display())
    );
    let script = dir.path().join("broken");
    std::fs::copy("/bin/true", &script).unwrap();
    // Truncating keeps the permission bits; the content is not a program for any machine.
    let file = std::fs::File::create(&script).unwrap();
    drop(file);
    std::fs::copy("/proc/self/cmdline", &script).unwrap();
    let text = spawn_error(program(&script.display().to_string(), &[])).await;
    assert!(text.contains("cannot execute") || text.contains("not an executable"), "{text}");
}

#[tokio::test]
async fn invalid_working_directory_is_an_error() {
    let definition = McpServerDef { cwd: Some("/no/such/dir".into()), ..program("cat", &[]) };
    assert_eq!(
        spawn_error(definition).await,
        "working directory `/no/such/dir` does not exist or is not a directory"
    );
}

#[tokio::test]
async fn nul_byte_is_an_error() {
    assert_eq!(spawn_error(program("cat", &["fine", "a\0b"])).await, "args[1] contains a NUL byte");
}

#[tokio::test]
async fn invalid_guardian_is_an_error() {
    let mut options = guarded();
    options.guardian = toolrack_stdio::Guardian::Program("/bin/true".into());
    let error = StdioTransport::spawn_with(&program("cat", &[]), options).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start the guardian process");
}
