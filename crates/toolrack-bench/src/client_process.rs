//! Client process: started with a time limit by the benchmark, and entry point of the process itself.
//!
//! **Invariant:** when [`run`] returns, the client and everything it started have exited.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};

use crate::cli::ClientArgs;
use crate::clients::bare_pipe::{self, BlockingPipe, BufferPolicy, TokioPipe};
use crate::clients::{
    BareHyper, ClientName, ManagerClient, ManagerClientRaw, Pmcp, PmcpHttp, Rmcp, Toolrack,
    ToolrackGuarded, ToolrackRaw, ToolrackSession, Tower, Turbomcp, bare_tcp,
};
use crate::report::{ClientOutput, Metric, Report};
use crate::scenario::http::{self, HttpJob, HttpWorkload};
use crate::scenario::stdio::{self, Job};
use crate::scenario::{MeasurementMethod, Runtime, Subject, cli, gateway, manager};
use crate::server_process::{HttpServer, ServerCommand, ServerProcess};
use crate::{alloc, resource_usage, system};

/// Outcome of one client process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunOutcome {
    Measured(Report),
    TimedOut,
    Failed(String),
}

/// Time to exit after the output is complete.
const EXIT_TIMEOUT: Duration = Duration::from_secs(8);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Makes this process the parent of orphaned descendants, so that it can reap them.
pub(crate) fn become_subreaper() -> anyhow::Result<()> {
    set_child_subreaper(Some(getpid())).context("cannot become a subreaper")
}

/// Runs the client in its own process.
pub(crate) fn run(args: &ClientArgs) -> anyhow::Result<RunOutcome> {
    let mut command = system::command(std::env::current_exe()?);
    command.args(args.to_args());
    Ok(run_with_timeout(command, args)?.outcome)
}

/// Runs the client under callgrind; the report contains the instructions of the whole run.
pub(crate) fn run_counting_instructions(args: &ClientArgs) -> anyhow::Result<RunOutcome> {
    let mut command = system::command("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(args.to_args());
    let finished = run_with_timeout(command, args)?;
    let RunOutcome::Measured(mut report) = finished.outcome else {
        return Ok(finished.outcome);
    };
    match parse_instruction_count(&finished.stderr) {
        Some(instructions) => {
            report.insert(Metric::Instructions, instructions);
            Ok(RunOutcome::Measured(report))
        }
        None => Ok(RunOutcome::Failed("callgrind counted nothing".to_owned())),
    }
}

/// Whether a program can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    first_line_of(program, &["--version"]).is_some()
}

/// First line of the output of a program.
pub(crate) fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    let output = system::command(program).args(args).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

struct Finished {
    outcome: RunOutcome,
    stderr: String,
}

fn run_with_timeout(
    mut command: std::process::Command,
    args: &ClientArgs,
) -> anyhow::Result<Finished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the client process")?;
    let stdout = read_in_background(child.stdout.take().context("no stdout")?);
    let stderr = read_in_background(child.stderr.take().context("no stderr")?);

    // Wait for the end of the output instead of polling the process, which would take CPU time from the client.
    let printed = stdout.recv_timeout(args.scenario.timeout()).ok();
    if printed.is_none() {
        child.kill()?;
    }
    wait_or_kill(&mut child)?;
    reap_orphans()?;
    // Servers inherit the client's stderr, so it ends only after they have exited.
    let stderr = stderr.recv_timeout(EXIT_TIMEOUT).unwrap_or_default();
    let outcome = match printed {
        None => RunOutcome::TimedOut,
        Some(printed) => parse_outcome(&printed, &stderr),
    };
    Ok(Finished { outcome, stderr })
}

/// Reads to the end in a thread, which sends one message; the channel never blocks.
fn read_in_background(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes before a read error are still useful. The receiver may have given up.
        if pipe.read_to_end(&mut bytes).is_ok() || !bytes.is_empty() {
            sender.send(String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        }
    });
    receiver
}

fn wait_or_kill(child: &mut Child) -> anyhow::Result<()> {
    let deadline = system::now() + EXIT_TIMEOUT;
    while child.try_wait()?.is_none() {
        if system::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Waits for orphans of the client and kills those that do not exit.
fn reap_orphans() -> anyhow::Result<()> {
    let deadline = system::now() + EXIT_TIMEOUT;
    while let Ok(reaped) = wait(WaitOptions::NOHANG) {
        if reaped.is_some() {
            continue;
        }
        if system::now() > deadline + EXIT_TIMEOUT {
            bail!("cannot kill an orphan of a client");
        }
        if system::now() > deadline {
            for pid in children()? {
                // The process may have exited meanwhile.
                kill_process(pid, Signal::KILL).unwrap_or_default();
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn children() -> anyhow::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(
            text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)),
        );
    }
    Ok(found)
}

fn parse_outcome(printed: &str, stderr: &str) -> RunOutcome {
    match serde_json::from_str(printed.trim()) {
        Ok(ClientOutput::Report(report)) => RunOutcome::Measured(report),
        Ok(ClientOutput::Failure(reason)) => RunOutcome::Failed(first_line(&reason)),
        Err(_) => {
            let last = stderr.lines().rfind(|line| !line.trim().is_empty());
            RunOutcome::Failed(format!("no report: {}", last.unwrap_or("no output")))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Instruction count in the last lines of callgrind, `==123== Collected : 456`.
fn parse_instruction_count(stderr: &str) -> Option<f64> {
    let (_, count) = stderr.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

/// Runs the scenario in this process; a failure is part of the output.
pub(crate) fn run_client(args: &ClientArgs) -> ClientOutput {
    match run_scenario(args) {
        Ok(report) => ClientOutput::Report(report),
        Err(error) => ClientOutput::Failure(format!("{error:#}")),
    }
}

fn run_scenario(args: &ClientArgs) -> anyhow::Result<Report> {
    // The client must not outlive the benchmark, however that ends; a server exits with its client.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent death signal")?;
    if args.scenario.subject() == Subject::Cli {
        return cli::run(args.client, args.scenario, args.preset().size());
    }
    if args.pin {
        resource_usage::pin_to_one_core()?;
    }
    if args.scenario.counts_allocations() {
        alloc::start_counting();
    }
    let mut builder = match args.rt {
        Runtime::Current => tokio::runtime::Builder::new_current_thread(),
        Runtime::Multi => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let (size, n_calls) = (args.preset().size(), args.calls);
    let Some(workload) = HttpWorkload::for_scenario(args.scenario) else {
        let server = ServerCommand::with_tools(args.scenario.n_tools())?;
        let job = Job { scenario: args.scenario, size, n_calls, server };
        return match (args.scenario.subject(), args.scenario.method()) {
            (Subject::Gateway, _) => {
                runtime.block_on(gateway::run(args.client, args.scenario, size))
            }
            (Subject::Manager, MeasurementMethod::Rounds) => {
                runtime.block_on(manager::run(args.client, &job))
            }
            _ => runtime.block_on(run_stdio_client(args.client, &job)),
        };
    };
    let process = ServerProcess::start(&ServerCommand::over_http()?)?;
    let port = process.first_line.parse().context("the server printed no port")?;
    let server = HttpServer { port, framing: workload.framing };
    let job = HttpJob { workload, size, n_calls, server };
    let report = runtime.block_on(run_http_client(args.client, &job));
    // Closing stdin stops the server even while the client has open connections.
    process.stop()?;
    report
}

async fn run_http_client(client: ClientName, job: &HttpJob) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTcp => bare_tcp::run(job).await,
        ClientName::BareHyper => http::run::<BareHyper>(job).await,
        ClientName::Toolrack => http::run::<Toolrack>(job).await,
        ClientName::ToolrackRaw => http::run::<ToolrackRaw>(job).await,
        ClientName::ToolrackSession => http::run::<ToolrackSession>(job).await,
        ClientName::Rmcp => http::run::<Rmcp>(job).await,
        ClientName::Pmcp => http::run::<PmcpHttp>(job).await,
        other => bail!("{other:?} is not measured over HTTP"),
    }
}

async fn run_stdio_client(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare_pipe::run::<TokioPipe>(job, BufferPolicy::Reused).await,
        ClientName::BareBlock => bare_pipe::run::<BlockingPipe>(job, BufferPolicy::Reused).await,
        ClientName::BareFresh => bare_pipe::run::<BlockingPipe>(job, BufferPolicy::Fresh).await,
        ClientName::Toolrack => stdio::run::<Toolrack>(job).await,
        ClientName::ToolrackRaw => stdio::run::<ToolrackRaw>(job).await,
        ClientName::ToolrackGuarded => stdio::run::<ToolrackGuarded>(job).await,
        ClientName::Manager => stdio::run::<ManagerClient>(job).await,
        ClientName::ManagerRaw => stdio::run::<ManagerClientRaw>(job).await,
        ClientName::Rmcp => stdio::run::<Rmcp>(job).await,
        ClientName::Pmcp => stdio::run::<Pmcp>(job).await,
        ClientName::Turbomcp => stdio::run::<Turbomcp>(job).await,
        ClientName::Tower => stdio::run::<Tower>(job).await,
        other => bail!("{other:?} is not measured on stdio"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, stderr: &str, expected: &RunOutcome) {
        assert_eq!(parse_outcome(printed, stderr), *expected);
    }

    #[test]
    fn outcome_is_parsed_from_output() {
        let report = Report::from([(Metric::P50Micros, 4.5)]);
        check("{\"report\":{\"p50_micros\":4.5}}\n", "", &RunOutcome::Measured(report));
        check(
            r#"{"failure":"no text\nat all"}"#,
            "noise",
            &RunOutcome::Failed("no text".to_owned()),
        );
        check(
            "",
            "first\nthread main panicked\n\n",
            &RunOutcome::Failed("no report: thread main panicked".to_owned()),
        );
        check("", "", &RunOutcome::Failed("no report: no output".to_owned()));
    }

    #[test]
    fn instruction_count_is_parsed() {
        let stderr = "==42== Events    : Ir\n==42== Collected : 123456\n==42==\n";
        assert_eq!(parse_instruction_count(stderr), Some(123_456.0));
        assert_eq!(parse_instruction_count("==42== Events : Ir\n"), None);
    }
}
