//! Command-line scenarios: a program that starts, makes one call and exits, compared with the server alone.
//!
//! Time and memory are measured in separate runs, because sampling memory takes time.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, bail, ensure};
use rustix::time::ClockId;
use serde_json::{Value, json};
use toolrack_testkit::harness::{self, now, quantile};

use super::Work;
use super::calls::Job;
use super::measure::{median_of, to_f64};
use crate::clients::ClientName;
use crate::clients::bare_pipe::{INITIALIZE, INITIALIZED};
use crate::clients::cli_programs::{self, CliCall};
use crate::metric::{self as m, Report};
use crate::resource_usage::{self, clock};
use crate::server_process::ServerCommand;

/// Interval of memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);

/// Runs of a program that exits before the first memory sample.
const MAX_ATTEMPTS: usize = 20;

pub(crate) fn run(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    let n_starts = job.size.n_starts;
    let call = match job.work {
        Work::CliNode => CliCall::on_node_server()?,
        Work::CliDemo => CliCall::on_demo_server()?,
        Work::CliHelp => {
            // Some programs print help to stderr, so no output is expected.
            return measure_program(n_starts, || cli_programs::command(client, None), "");
        }
        Work::CliSize => return measure_size(),
        Work::CliWarm => return measure_warm(n_starts),
        Work::CliFirstByte(n_servers) => {
            return measure_first_byte(client, n_starts, n_servers);
        }
        other => bail!("{other:?} is not a command-line scenario"),
    };
    if client == ClientName::BareBlock {
        return measure_server(n_starts, &call);
    }
    let command = || cli_programs::command(client, Some(&call));
    measure_program(n_starts, command, call.expected_output)
}

/// Runs the program several times for its time, and once more for its memory.
fn measure_program(
    n_starts: usize,
    command: impl Fn() -> anyhow::Result<Command>,
    expected: &str,
) -> anyhow::Result<Report> {
    let mut runs = Vec::new();
    // The first run loads the program into the page cache and is not counted.
    for n in 0..=n_starts {
        let mut command = command()?;
        let home = tempfile::tempdir()?;
        let run = Run::timed(with_home(&mut command, home.path()), expected)?;
        home.close()?;
        if n > 0 {
            runs.push(run);
        }
    }
    let peak = Peak::measure(&command)?;
    let mut report = times(&runs)?;
    report.insert(m::PEAK_MIB, mib(peak.program));
    report.insert(m::TREE_PEAK_MIB, mib(peak.tree));
    Ok(report)
}

fn times(runs: &[Run]) -> anyhow::Result<Report> {
    let millis = |duration: fn(&Run) -> Duration| {
        let values: Vec<f64> = runs.iter().map(|run| duration(run).as_secs_f64() * 1e3).collect();
        median_of(&values)
    };
    Ok(Report::from([
        (m::FIRST_OUTPUT, millis(|run| run.first_output)?),
        (m::MILLIS, millis(|run| run.exited)?),
    ]))
}

/// Times of one run, from its start.
#[derive(Debug)]
struct Run {
    /// Until the first output.
    first_output: Duration,
    /// Until the exit.
    exited: Duration,
}

impl Run {
    fn timed(command: &mut Command, expected: &str) -> anyhow::Result<Self> {
        let before = now();
        let mut child = spawn(command)?;
        let mut output = vec![0; 4096];
        let mut stdout = child.stdout.take().context("no stdout")?;
        let n_read = stdout.read(&mut output)?;
        let first_output = now() - before;
        let status = child.wait()?;
        let exited = now() - before;
        output.truncate(n_read);
        stdout.read_to_end(&mut output)?;
        let output = String::from_utf8_lossy(&output);
        if !status.success() || !output.contains(expected) {
            let mut stderr = String::new();
            child.stderr.take().context("no stderr")?.read_to_string(&mut stderr)?;
            bail!("{status}: {}", stderr.lines().next().unwrap_or("no output"));
        }
        Ok(Self { first_output, exited })
    }
}

/// Peak resident memory in KiB.
#[derive(Debug)]
struct Peak {
    program: u64,
    /// Program and descendants at the same moment.
    tree: u64,
}

impl Peak {
    fn measure(command: &impl Fn() -> anyhow::Result<Command>) -> anyhow::Result<Self> {
        for _ in 0..MAX_ATTEMPTS {
            let peak = Self::sample(command()?)?;
            if peak.program > 0 {
                return Ok(peak);
            }
        }
        bail!("the program exited before its memory was sampled")
    }

    fn sample(mut command: Command) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let mut child = spawn(with_home(&mut command, home.path()))?;
        let mut peak = Self { program: 0, tree: 0 };
        while child.try_wait()?.is_none() {
            // A process that has just exited has no memory.
            peak.program =
                peak.program.max(resource_usage::peak_resident_of(child.id()).unwrap_or(0));
            peak.tree = peak.tree.max(resource_usage::resident_of_tree(child.id()));
            thread::sleep(SAMPLE_INTERVAL);
        }
        home.close()?;
        Ok(peak)
    }
}

/// Runs the program in an empty home: no config, no cache.
pub(crate) fn with_home<'a>(command: &'a mut Command, home: &Path) -> &'a mut Command {
    let variables = ["HOME", "TOOLRACK_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"];
    command.current_dir(home).envs(variables.map(|name| (name, home)))
}

/// A call through a daemon that keeps the server running.
fn measure_warm(n_starts: usize) -> anyhow::Result<Report> {
    let call = CliCall::on_demo_server()?;
    let home = tempfile::tempdir()?;
    let run = |args: &[&str], expected: &str| {
        let mut command = harness::command(cli_programs::toolrack_path()?);
        Run::timed(with_home(&mut command, home.path()).args(args), expected)
    };
    let server = call.server.program.display().to_string();
    run(&["add", "demo", "--", &server, "__demo-server"], "")?;
    run(&["daemon", "start", "--listen", "none"], "")?;
    let tool = format!("demo.{}", call.tool);
    let arguments: Vec<String> = call.key_value_args().collect();
    let mut args = vec!["call", tool.as_str()];
    args.extend(arguments.iter().map(String::as_str));
    let runs: anyhow::Result<Vec<Run>> =
        (0..=n_starts).map(|_| run(&args, call.expected_output)).collect();
    run(&["daemon", "stop"], "")?;
    // The first call waits for the server to start and is not counted.
    times(runs?.get(1..).unwrap_or_default())
}

/// More starts than elsewhere, because they are short and the 95th percentile needs them.
const FIRST_BYTE_STARTS: usize = 10;

/// Time from the start of `toolrack call` until the called server reads its first byte. The others are configured
/// and not called. For comparison the same time without `toolrack`, which is the start of the server alone.
fn measure_first_byte(
    client: ClientName,
    n_starts: usize,
    n_servers: usize,
) -> anyhow::Result<Report> {
    let call = CliCall::on_demo_server()?;
    let server = toolrack_testkit::program("demo-server");
    let mut millis = Vec::new();
    // The first run loads the program into the page cache and is not counted.
    for n in 0..=n_starts * FIRST_BYTE_STARTS {
        let home = tempfile::tempdir()?;
        let noted = home.path().join("first-byte");
        write_config(home.path(), n_servers, |number| {
            let noted = noted.display().to_string();
            let args =
                if number == 0 { vec!["--first-byte".to_owned(), noted] } else { Vec::new() };
            ServerCommand { program: server.clone(), args }
        })?;
        let started = clock(ClockId::Monotonic);
        if client == ClientName::BareBlock {
            let mut command = harness::command(&server);
            command.arg("--first-byte").arg(&noted).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut running = command.spawn()?;
            running.stdin.take().context("no stdin")?.write_all(INITIALIZE)?;
            running.wait()?;
        } else {
            let mut command = harness::command(cli_programs::toolrack_path()?);
            let tool = format!("server-0.{}", call.tool);
            command.args(["call", &tool]).args(call.key_value_args());
            Run::timed(with_home(&mut command, home.path()), call.expected_output)?;
        }
        let read = fs::read_to_string(noted).context("the server was not called")?;
        let took = Duration::from_nanos(read.parse()?).saturating_sub(started);
        if n > 0 {
            millis.push(took.as_secs_f64() * 1e3);
        }
    }
    let p95 = quantile(&millis, 0.95).context("nothing was measured")?;
    Ok(Report::from([(m::MILLIS, median_of(&millis)?), (m::P95_MILLIS, p95)]))
}

/// Writes a config file of servers `server-0`, `server-1` and so on.
pub(crate) fn write_config(
    home: &Path,
    n_servers: usize,
    server: impl Fn(usize) -> ServerCommand,
) -> anyhow::Result<()> {
    let mut config = File::create(home.join("toolrack.toml"))?;
    for number in 0..n_servers {
        let ServerCommand { program, args } = server(number);
        // Strings and arrays of JSON are valid TOML.
        let (program, args) = (json!(program), json!(args));
        writeln!(
            config,
            "[[defaults.mcp]]\nname = \"server-{number}\"\ntransport = \"stdio\"\n\
             command = {program}\nargs = {args}\n"
        )?;
    }
    Ok(())
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("cannot start the program")
}

/// Time of the server alone with a minimal client: start, handshake, call, and exit after stdin closes.
fn measure_server(n_starts: usize, call: &CliCall) -> anyhow::Result<Report> {
    let (mut runs, mut peaks) = (Vec::new(), Vec::new());
    for n in 0..=n_starts {
        let before = now();
        let mut command = call.server.std();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn()?;
        let mut stdin = server.stdin.take().context("no stdin")?;
        let mut stdout = BufReader::new(server.stdout.take().context("no stdout")?);
        let response = call_server(&mut stdin, &mut stdout, call)?;
        let first_output = now() - before;
        let peak = resource_usage::peak_resident_of(server.id())?;
        drop(stdin);
        server.wait()?;
        let exited = now() - before;
        ensure!(response.to_string().contains(call.expected_output), "{response}");
        if n > 0 {
            runs.push(Run { first_output, exited });
            peaks.push(mib(peak));
        }
    }
    let mut report = times(&runs)?;
    report.insert(m::TREE_PEAK_MIB, median_of(&peaks)?);
    Ok(report)
}

fn call_server(
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
    call: &CliCall,
) -> anyhow::Result<Value> {
    stdin.write_all(INITIALIZE)?;
    read_response(stdout, 1)?;
    let arguments: Value =
        call.arguments.iter().map(|(name, text)| (*name, to_json(text))).collect();
    let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": call.tool,
        "arguments": arguments,
    }});
    stdin.write_all(INITIALIZED)?;
    writeln!(stdin, "{request}")?;
    read_response(stdout, 2)
}

/// Numbers become JSON numbers, as command-line programs convert them.
fn to_json(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_text| Value::from(text), Value::from)
}

/// Reads until the response with this id; other messages are ignored.
fn read_response(stdout: &mut BufReader<ChildStdout>, id: u64) -> anyhow::Result<Value> {
    let mut line = String::new();
    while stdout.read_line(&mut line)? > 0 {
        let message: Value = serde_json::from_str(&line)?;
        if message.get("id").and_then(Value::as_u64) == Some(id) {
            return Ok(message);
        }
        line.clear();
    }
    bail!("the server exited without a response")
}

/// Size of the program as built, and without symbols as users download it.
fn measure_size() -> anyhow::Result<Report> {
    let built = cli_programs::toolrack_path()?;
    let dir = tempfile::tempdir()?;
    let copy = dir.path().join("toolrack");
    fs::copy(&built, &copy)?;
    let status = harness::command("strip").arg(&copy).status();
    match status {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("`strip` is missing: install binutils");
        }
        status => ensure!(status?.success(), "`strip` failed"),
    }
    let mib = |path| anyhow::Ok(mib(fs::metadata(path)?.len() / 1024));
    let report = [(m::BUILT_MIB, mib(built)?), (m::STRIPPED_MIB, mib(copy)?)];
    Ok(Report::from(report))
}

fn mib(kib: u64) -> f64 {
    to_f64(kib) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, expected: &str) -> Result<Run, String> {
        let mut command = harness::command("sh");
        command.args(["-c", script]);
        Run::timed(&mut command, expected).map_err(|error| error.to_string())
    }

    #[test]
    fn run_requires_expected_output_and_success() {
        let run = check("echo early; exec 1>&-; sleep 0.2", "early").unwrap();
        assert!(run.exited >= run.first_output + Duration::from_millis(100), "{run:?}");
        assert_eq!(check("echo hi; echo why >&2", "hello").unwrap_err(), "exit status: 0: why");
        assert_eq!(check("echo hi; exit 3", "hi").unwrap_err(), "exit status: 3: no output");
    }

    #[test]
    fn process_tree_uses_more_memory_than_its_root() {
        let mut command = harness::command("sh");
        command.args(["-c", "sleep 0.2 & sleep 0.2; wait"]);
        let peak = Peak::sample(command).unwrap();
        assert!(peak.tree > peak.program, "{peak:?}");
    }
}
