//! Attacks of contained programs, and what is compared before and after them.

// The environment is changed before there are threads. Each program uses a part of this.
#![allow(unsafe_code, dead_code)]

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use containment::{
    ContainedCommand, ContainedEnd, ContainedExit, ContainedProcess, ContainmentError,
    ContainmentLimit, ContainmentLimits, GuestMachine, UploadedFolder,
};
use rustix::fs::{FlockOperation, flock};
use sunder_lab::{Trial, TrialContext, perform, sandbox};
use tempfile::TempDir;

/// Lists the tests with the names of their functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || { $name(); Ok(()) })),*]
    };
}
pub(crate) use tests;

/// The variable with the port on which this program listens on the host.
pub(crate) const PORT: &str = "SUNDER_TEST_PORT";

/// The variable with the number of this program on the host.
pub(crate) const HOST_PROCESS: &str = "SUNDER_TEST_PROCESS";

/// Listens on the host's loopback interface, and at an abstract address.
pub(crate) fn listen_on_the_host() -> (TcpListener, UnixListener) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = process::id().to_string();
    let unix = UnixListener::bind_addr(&abstract_address(&number)).unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    // SAFETY: the program has one thread.
    unsafe {
        env::set_var(PORT, port);
        env::set_var(HOST_PROCESS, number);
    }
    (tcp, unix)
}

pub(crate) fn abstract_address(number: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("sunder-contained-{number}")).unwrap()
}

/// Limits that are soon reached.
pub(crate) const LIMITS: ContainmentLimits = ContainmentLimits {
    memory_mib: 64,
    processes: 20,
    disk_mib: 16,
    files: 200,
    output_mib: 1,
    processors: 1.0,
    time: Duration::from_secs(60),
};

/// A folder with a script, `run.sh`.
pub(crate) fn folder(script: &str) -> TempDir {
    let folder = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    fs::write(folder.path().join("run.sh"), script).unwrap();
    folder
}

/// A contained process, and what it prints.
pub(crate) struct Attack {
    pub(crate) process: ContainedProcess,
    /// The folder, and the file with the output.
    place: TempDir,
}

impl Attack {
    pub(crate) fn start(script: &str, arguments: &[&str], limits: ContainmentLimits) -> Self {
        Self::try_start(script, arguments, limits, None).unwrap()
    }

    /// The same, in a virtual machine if there is one.
    pub(crate) fn try_start(
        script: &str,
        arguments: &[&str],
        limits: ContainmentLimits,
        machine: Option<GuestMachine>,
    ) -> Result<Self, ContainmentError> {
        let place = folder(script);
        let run = ["sh", "./run.sh"].iter().chain(arguments).map(|it| (*it).to_owned()).collect();
        let command = ContainedCommand {
            run,
            folder: UploadedFolder::open(place.path()).unwrap(),
            directory: "".into(),
            program: Some(env::current_exe().unwrap()),
            network: File::open("/proc/self/ns/net").unwrap().into(),
            machine,
            limits,
            output: File::create(place.path().join("output")).unwrap(),
            scratch: sandbox::SCRATCH.into(),
        };
        Ok(Self { process: ContainedProcess::start(command)?, place })
    }

    pub(crate) fn end(mut self) -> (ContainedEnd, String) {
        let end = self.process.wait(Duration::from_secs(120)).unwrap().expect("it has a limit");
        (end, self.output())
    }

    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.place.path().join("output")).unwrap()
    }

    /// Waits until it has printed a text.
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.output().contains(text) {
            assert!(Instant::now() < deadline, "{}", self.output());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a process must leave as it was: mounts, files, and processes of this sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    mounts: usize,
    files: Vec<String>,
    processes: Vec<String>,
}

impl Surroundings {
    pub(crate) fn now() -> Self {
        let names = |directory: &str| {
            let entries = fs::read_dir(directory).unwrap().flatten();
            let mut names: Vec<String> =
                entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let is_number = |name: &String| name.parse::<u32>().is_ok();
        Self {
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            files: names(sandbox::SCRATCH),
            processes: names("/proc").into_iter().filter(is_number).collect(),
        }
    }
}

/// Starts an attack, waits until it has ended, and checks that nothing of it is left.
pub(crate) fn attacked(start: impl FnOnce() -> Attack) -> (ContainedExit, String) {
    let before = Surroundings::now();
    let (end, output) = start().end();
    println!("{:?} after {:.2} s", end.exit, end.time.as_secs_f64());
    assert_eq!(Surroundings::now(), before);
    assert_eq!(stale_groups(), Vec::<PathBuf>::new());
    (end.exit, output)
}

/// Checks that an attack was stopped at a limit.
pub(crate) fn assert_limit(limit: ContainmentLimit, (exit, output): (ContainedExit, String)) {
    let output = output.chars().take(400).collect::<String>();
    assert_eq!(exit, ContainedExit::Limit(limit), "{output}");
}

/// The control groups of contained programs below a directory.
pub(crate) fn groups(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|it| it.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with("sunder-contained-") {
            found.push(entry.path());
        } else {
            found.extend(groups(&entry.path()));
        }
    }
    found
}

/// The control groups of contained programs that nobody uses.
pub(crate) fn stale_groups() -> Vec<PathBuf> {
    let mut groups = groups(Path::new("/sys/fs/cgroup"));
    groups.retain(|group| {
        let is_used = File::open(group)
            .is_ok_and(|it| flock(&it, FlockOperation::NonBlockingLockExclusive).is_err());
        // It may have been removed meanwhile.
        !is_used && group.exists()
    });
    groups
}

pub(crate) const FORKS: &str =
    "trap '' TERM INT HUP; f() { f | f & }; f; while :; do sleep 1; done";

pub(crate) const MEMORY: &str =
    "exec python3 -c 'x = []\nwhile True: x.append(bytes(b\"x\" * (1 << 20)))'";

pub(crate) const IGNORING: &str =
    "trap '' TERM INT HUP QUIT USR1 ALRM; echo ready; while :; do sleep 1; done";

/// A script that runs a program in Python.
pub(crate) fn python(program: &str) -> String {
    format!("exec python3 - \"$@\" <<'END'\n{program}END\n")
}

/// Prints `read PATH` for each argument that can be read.
pub(crate) const READ: &str = "for path in \"$@\"; do \
                    if cat \"$path\" > /dev/null 2>&1; then echo \"read $path\"; fi; done";

/// Prints the length and a part of the program that it is given, and what it could do to it.
const GIVEN: &str = "stat -c %s /dev/shm/sunder; test -x /dev/shm/sunder && echo executable
                     (echo x > /dev/shm/sunder) 2> /dev/null && echo wrote
                     rm -f /dev/shm/sunder 2> /dev/null && echo removed
                     head -c 4 /dev/shm/sunder | tail -c 3";

/// Checks that a command is given this program, and cannot change it.
pub(crate) fn assert_given(attacked: impl FnOnce(&str) -> (ContainedExit, String)) {
    let length = env::current_exe().unwrap().metadata().unwrap().len();
    let (_, output) = attacked(GIVEN);
    assert_eq!(output, format!("{length}\nexecutable\nELF"));
}

/// A file elsewhere on the host, as of another user.
pub(crate) fn secret() -> tempfile::NamedTempFile {
    let secret = tempfile::Builder::new().tempfile_in("/var/tmp").unwrap();
    fs::write(secret.path(), "secret\n").unwrap();
    secret
}

/// Prints what could be reached: the host's port and abstract address, its addresses, and the
/// names of interfaces.
pub(crate) const REACH: &str = r"import socket, sys
port, name = int(sys.argv[1]), sys.argv[2]
for address in ['127.0.0.1', '10.0.0.1', '169.254.169.254', '1.1.1.1']:
  try:
    socket.create_connection((address, port), 2)
    print('reached', address)
  except OSError: pass
for path in ['\0sunder-contained-' + name, '/run/docker.sock', '/run/dbus/system_bus_socket']:
  try:
    socket.socket(socket.AF_UNIX).connect(path)
    print('reached', path)
  except OSError: pass
try:
  socket.getaddrinfo('example.com', 80)
  print('resolved')
except OSError: pass
print([name for _, name in socket.if_nameindex()])
";

pub(crate) const LISTENING: &str = "exec python3 -m http.server 80 --bind \"$2\"\n";

/// A trial of the driver `scripts`, and the text of its result.
pub(crate) fn performed(server: &str, client: &str, options: &str) -> [String; 3] {
    let place = folder("");
    for (role, script) in [("server", server), ("client", client)] {
        fs::write(place.path().join(format!("pair-{role}.sh")), script).unwrap();
    }
    let text = format!(
        "hosts = {{ a = {{}}, b = {{}} }}\n\
         links.wire = {{ hosts = [\"a\", \"b\"], both = {{ rate_mbit = 100, delay_ms = 1 }} }}\n\
         [measure]\ndriver = \"scripts\"\n\
         options = {{ scripts = \"{}\", client = \"a\", server = \"b\", transport = \"tcp\", {options} }}\n\
         values = {{ exit = {{ json = \"/client_exit\" }} }}\n\
         [measure.texts]\nresult = {{ json = \"/result\" }}\nlimit = {{ json = \"/client/limit\" }}\n\
         contained = {{ json = \"/contained\" }}",
        place.path().display()
    );
    let trial: Trial = toml::from_str(&text).unwrap();
    let files = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    let (files, number) = (files.path(), 1);
    let context = TrialContext { seed: 1, files, results: files, number };
    let measured = perform(&trial, context, &|_| {}).unwrap();
    ["result", "limit", "contained"]
        .map(|name| measured.texts.get(name).cloned().unwrap_or_default())
}
