//! Private Docker engine for tests, with one small image.
//!
//! It has no network, so containers need `--network=none`. Its directory is removed when it stops.
//!
//! **Invariant:** the engine stops with the test program that started it, even if that is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::harness;
use crate::process::Marker;
use crate::programs::program;
use crate::wait::poll;

/// Longer than an engine takes to start, even on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Includes the sbin directories, where Debian installs the engine.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prefix of engine directories.
const DIR_PREFIX: &str = "toolrack-docker-";

/// Runs the engine until the end of stdin, which comes when the test program exits or dies.
const SUPERVISOR_SCRIPT: &str = r#"
dir=$1
trap '' INT TERM HUP
exec 9>"$dir/lock"
flock 9
dockerd --host="unix://$dir/engine.sock" --data-root="$dir/data" --exec-root="$dir/exec" \
    --pidfile="$dir/pid" --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs \
    --shutdown-timeout=1 </dev/null >"$dir/log" 2>&1 &
cat >/dev/null
export DOCKER_HOST="unix://$dir/engine.sock"
left=$(docker ps --all --quiet)
[ -z "$left" ] || docker rm --force $left
kill $!
wait $!
rm -rf "$dir"
"#;

/// A running engine.
#[derive(Debug)]
pub struct DockerEngine {
    dir: PathBuf,
    /// The shell holds the engine; its stdin is the other end of our pipe.
    _shell: Child,
}

impl DockerEngine {
    /// Image whose entry point is `scripted-server`.
    pub const IMAGE: &str = "toolrack-test:1";

    /// Returns the engine of this test program, started on first use.
    ///
    /// # Errors
    ///
    /// The reason why no engine can run here.
    pub fn shared() -> Result<&'static Self, String> {
        static ENGINE: OnceLock<Result<DockerEngine, String>> = OnceLock::new();
        ENGINE.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    /// Value of `DOCKER_HOST` for this engine.
    pub fn host(&self) -> String {
        format!("unix://{}/engine.sock", self.dir.display())
    }

    /// Runs `docker` with these arguments.
    ///
    /// # Errors
    ///
    /// When `docker` cannot be run.
    pub fn run(&self, args: &[&str]) -> io::Result<Output> {
        command("docker").env("DOCKER_HOST", self.host()).args(args).output()
    }

    /// Returns the names of all containers that contain `name`, running or not.
    ///
    /// # Errors
    ///
    /// When the engine does not answer.
    pub fn containers(&self, name: &str) -> io::Result<Vec<String>> {
        let filter = format!("--filter=name={name}");
        let listed = self.run(&["ps", "--all", "--format={{.Names}}", &filter])?;
        let names = String::from_utf8_lossy(&listed.stdout);
        Ok(names.lines().map(str::to_owned).collect())
    }

    fn start() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a private Docker engine needs root".to_owned());
        }
        for program in ["dockerd", "docker"] {
            if !PATH.split(':').any(|dir| Path::new(dir).join(program).is_file()) {
                return Err(format!("`{program}` is missing: `apt-get install docker.io`"));
            }
        }
        remove_stale_dirs();
        let dir = std::env::temp_dir().join(format!("{DIR_PREFIX}{}", Marker::new().value()));
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let shell = command("sh")
            .args(["-c", SUPERVISOR_SCRIPT, "engine"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run `sh`: {error}"))?;
        let engine = Self { dir, _shell: shell };
        let is_up = || {
            let answer = engine.run(&["version", "--format={{.Server.Version}}"]);
            answer.is_ok_and(|answer| answer.status.success())
        };
        if !poll(START_TIMEOUT, is_up) {
            let log = fs::read_to_string(engine.dir.join("log")).unwrap_or_default();
            return Err(format!("dockerd does not start: {}", log.lines().last().unwrap_or("")));
        }
        engine.import().map_err(|error| format!("cannot build the test image: {error}"))?;
        Ok(engine)
    }

    /// Builds the image from `scripted-server` and its shared libraries.
    fn import(&self) -> io::Result<()> {
        let (root, server) = (self.dir.join("root"), program("scripted-server"));
        fs::create_dir_all(root.join("tmp"))?;
        let libraries = command("ldd").arg(&server).output()?.stdout;
        let libraries = String::from_utf8_lossy(&libraries).into_owned();
        for library in libraries.split_whitespace().filter_map(|word| word.strip_prefix('/')) {
            let path = Path::new("/").join(library);
            if path.is_file() {
                copy(&path, &root.join(library))?;
            }
        }
        copy(&server, &root.join("server"))?;
        let tar = self.dir.join("image.tar");
        let packed = command("tar").arg("-cf").arg(&tar).arg("-C").arg(&root).arg(".").output()?;
        expect_success(&packed)?;
        let tar = tar.display().to_string();
        let change = "--change=ENTRYPOINT [\"/server\"]";
        expect_success(&self.run(&["import", change, &tar, Self::IMAGE])?)
    }
}

/// Removes the directories of killed engines. A running engine holds its lock.
fn remove_stale_dirs() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let engine_dirs =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(DIR_PREFIX));
    for dir in engine_dirs.map(|entry| entry.path()) {
        let lock = File::open(dir.join("lock"));
        if lock.is_ok_and(|file| file.try_lock().is_ok()) {
            // Another user's directory cannot be removed; leave it.
            fs::remove_dir_all(dir).unwrap_or_default();
        }
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

fn expect_success(output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn command(program: &str) -> Command {
    let mut command = harness::command(program);
    command.env("PATH", PATH);
    command
}
