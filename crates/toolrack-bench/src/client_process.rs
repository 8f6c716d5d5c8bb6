//! Client process: started by the benchmark with a time limit, and its own entry point.
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
use crate::clients::bare_pipe::{self, BlockingPipe, Buffer, TokioPipe};
use crate::clients::{
    BareHyper, ClientName, Pmcp, PmcpHttp, Rack, RackRaw, Rmcp, Toolrack, ToolrackGuarded,
    ToolrackRaw, ToolrackSession, Tower, Turbomcp, bare_tcp,
};
use crate::report::{Answer, Metric, Report};
use crate::scenario::http::{self, HttpJob, Plan};
use crate::scenario::stdio::{Job, drive};
use crate::scenario::{How, Runtime, Subject, cli, gateway, manager};
use crate::server_process::{RemoteProcess, RemoteServer, ServerCommand};
use crate::{alloc, resource_usage, system};

/// How a run of a client ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Measured(Report),
    NeverFinished,
    Failed(String),
}

/// Ending by itself, once the answer is there or the pipes are closed, takes no longer than this.
const ENDING: Duration = Duration::from_secs(8);
const POLLING: Duration = Duration::from_millis(2);

/// From now on whatever a client leaves behind becomes a child of this process.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    set_child_subreaper(Some(getpid())).context("orphans cannot be adopted")
}

/// Runs the client as a process of its own.
pub(crate) fn run(args: &ClientArgs) -> anyhow::Result<Outcome> {
    let mut command = system::command(std::env::current_exe()?);
    command.args(args.to_args());
    Ok(within_limit(command, args)?.outcome)
}

/// Runs the client under callgrind; the report has the instructions of the whole run.
pub(crate) fn run_counting_instructions(args: &ClientArgs) -> anyhow::Result<Outcome> {
    let mut command = system::command("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(args.to_args());
    let ended = within_limit(command, args)?;
    let Outcome::Measured(mut report) = ended.outcome else {
        return Ok(ended.outcome);
    };
    match collected(&ended.stderr) {
        Some(instructions) => {
            report.insert(Metric::Instructions, instructions);
            Ok(Outcome::Measured(report))
        }
        None => Ok(Outcome::Failed("callgrind counted nothing".to_owned())),
    }
}

/// Whether a program can be started at all.
pub(crate) fn is_installed(program: &str) -> bool {
    first_line_of(program, &["--version"]).is_some()
}

/// The first line that a program prints.
pub(crate) fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    let output = system::command(program).args(args).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

struct Ended {
    outcome: Outcome,
    stderr: String,
}

fn within_limit(mut command: std::process::Command, args: &ClientArgs) -> anyhow::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("the client process cannot be started")?;
    let stdout = read_aside(child.stdout.take().context("no stdout")?);
    let stderr = read_aside(child.stderr.take().context("no stderr")?);

    // The output ends when the process does: waiting for it costs nobody any CPU.
    let printed = stdout.recv_timeout(args.scenario.limit()).ok();
    if printed.is_none() {
        child.kill()?;
    }
    end(&mut child)?;
    clear_away_orphans()?;
    // Servers share the client's stderr, so it ends only when they have.
    let stderr = stderr.recv_timeout(ENDING).unwrap_or_default();
    let outcome = match printed {
        None => Outcome::NeverFinished,
        Some(printed) => outcome(&printed, &stderr),
    };
    Ok(Ended { outcome, stderr })
}

/// Reads to the end in a thread of its own. The channel holds the one message there is.
fn read_aside(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (text, whole) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing; a late reader is worth nothing.
        if pipe.read_to_end(&mut bytes).is_ok() || !bytes.is_empty() {
            text.send(String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        }
    });
    whole
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    let deadline = system::now() + ENDING;
    while child.try_wait()?.is_none() {
        if system::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
        thread::sleep(POLLING);
    }
    Ok(())
}

/// Waits for what the client left running; what does not end by itself is killed.
fn clear_away_orphans() -> anyhow::Result<()> {
    let deadline = system::now() + ENDING;
    while let Ok(reaped) = wait(WaitOptions::NOHANG) {
        if reaped.is_some() {
            continue;
        }
        if system::now() > deadline + ENDING {
            bail!("a process that a client left behind cannot be killed");
        }
        if system::now() > deadline {
            for pid in children()? {
                // One that ended in between needs no signal.
                kill_process(pid, Signal::KILL).unwrap_or_default();
            }
        }
        thread::sleep(POLLING);
    }
    Ok(())
}

fn children() -> anyhow::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(text.split_ascii_whitespace().filter_map(|split_ascii_whitespace| {
            Pid::from_raw(split_ascii_whitespace.parse().ok()?)
        }));
    }
    Ok(found)
}

fn outcome(printed: &str, stderr: &str) -> Outcome {
    match serde_json::from_str(printed.trim()) {
        Ok(Answer::Report(report)) => Outcome::Measured(report),
        Ok(Answer::Failure(why)) => Outcome::Failed(first_line(&why)),
        Err(_) => {
            let last = stderr.lines().rfind(|line| !line.trim().is_empty());
            Outcome::Failed(format!("no answer: {}", last.unwrap_or("it said nothing")))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The count in callgrind's closing words, `==123== Collected : 456`.
fn collected(stderr: &str) -> Option<f64> {
    let (_, count) = stderr.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

/// Goes through the scenario; a failure is an answer like any other.
pub(crate) fn run_client(args: &ClientArgs) -> Answer {
    match measured(args) {
        Ok(report) => Answer::Report(report),
        Err(error) => Answer::Failure(format!("{error:#}")),
    }
}

fn measured(args: &ClientArgs) -> anyhow::Result<Report> {
    // Whatever ends the bench, no client outlives it; and a server ends with its client.
    set_parent_process_death_signal(Some(Signal::KILL)).context("the process cannot be tied")?;
    if args.scenario.subject() == Subject::Cli {
        return cli::drive(args.client, args.scenario, args.effort().size());
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
    let (size, n_calls) = (args.effort().size(), args.calls);
    let Some(plan) = Plan::of(args.scenario) else {
        let server = ServerCommand::with_tools(args.scenario.n_tools())?;
        let job = Job { scenario: args.scenario, size, n_calls, server };
        return match (args.scenario.subject(), args.scenario.how()) {
            (Subject::Gateway, _) => {
                runtime.block_on(gateway::drive(args.client, args.scenario, size))
            }
            (Subject::Manager, How::Rounds) => runtime.block_on(manager::drive(args.client, &job)),
            _ => runtime.block_on(chosen(args.client, &job)),
        };
    };
    let process = RemoteProcess::start(&ServerCommand::over_http()?)?;
    let port = process.said.parse().context("the server did not say its port")?;
    let server = RemoteServer { port, framing: plan.framing };
    let job = HttpJob { plan, size, n_calls, server };
    let report = runtime.block_on(chosen_over_http(args.client, &job));
    // A client whose connections are still open does not keep the server.
    process.end()?;
    report
}

async fn chosen_over_http(client: ClientName, job: &HttpJob) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTcp => bare_tcp::drive(job).await,
        ClientName::BareHyper => http::drive::<BareHyper>(job).await,
        ClientName::Toolrack => http::drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => http::drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackSession => http::drive::<ToolrackSession>(job).await,
        ClientName::Rmcp => http::drive::<Rmcp>(job).await,
        ClientName::Pmcp => http::drive::<PmcpHttp>(job).await,
        other => bail!("{other:?} is not measured over HTTP"),
    }
}

async fn chosen(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare_pipe::drive::<TokioPipe>(job, Buffer::Reused).await,
        ClientName::BareBlock => bare_pipe::drive::<BlockingPipe>(job, Buffer::Reused).await,
        ClientName::BareFresh => bare_pipe::drive::<BlockingPipe>(job, Buffer::Fresh).await,
        ClientName::Toolrack => drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackGuarded => drive::<ToolrackGuarded>(job).await,
        ClientName::Manager => drive::<Rack>(job).await,
        ClientName::ManagerRaw => drive::<RackRaw>(job).await,
        ClientName::Rmcp => drive::<Rmcp>(job).await,
        ClientName::Pmcp => drive::<Pmcp>(job).await,
        ClientName::Turbomcp => drive::<Turbomcp>(job).await,
        ClientName::Tower => drive::<Tower>(job).await,
        other => bail!("{other:?} is not measured on stdio"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, stderr: &str, expected: &Outcome) {
        assert_eq!(outcome(printed, stderr), *expected);
    }

    #[test]
    fn what_a_client_printed_is_its_outcome() {
        let report = Report::from([(Metric::P50Micros, 4.5)]);
        check("{\"report\":{\"p50_micros\":4.5}}\n", "", &Outcome::Measured(report));
        check(r#"{"failure":"no text\nat all"}"#, "noise", &Outcome::Failed("no text".to_owned()));
        check(
            "",
            "first\nthread main panicked\n\n",
            &Outcome::Failed("no answer: thread main panicked".to_owned()),
        );
        check("", "", &Outcome::Failed("no answer: it said nothing".to_owned()));
    }

    #[test]
    fn callgrind_says_how_many_instructions_it_saw() {
        let said = "==42== Events    : Ir\n==42== Collected : 123456\n==42==\n";
        assert_eq!(collected(said), Some(123_456.0));
        assert_eq!(collected("==42== Events : Ir\n"), None);
    }
}
