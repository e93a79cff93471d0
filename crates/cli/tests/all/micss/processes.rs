//! Running processes, and waiting for their output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{NamedTempFile, TempDir};

/// The time limit for all conditions.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// `sunder serve` or `sunder proxy`, killed when dropped.
pub(crate) struct Service {
    child: Child,
    /// The addresses on which it listens, as it reports.
    pub(crate) listening: Vec<String>,
    output: Receiver<String>,
    log: Receiver<String>,
    config: NamedTempFile,
    /// The directory of its status socket.
    runtime: TempDir,
}

impl Service {
    /// Starts `sunder COMMAND` with this configuration and waits until it listens on `listeners`
    /// addresses.
    pub(crate) fn start(command: &str, config: &str, listeners: usize) -> Self {
        Self::start_logging(command, config, listeners, "info,sunder_micss=debug")
    }

    /// The same, with these log levels.
    pub(crate) fn start_logging(
        command: &str,
        config: &str,
        listeners: usize,
        levels: &str,
    ) -> Self {
        let (file, runtime) = (configuration(config), TempDir::new().unwrap());
        let mut child =
            program(command, [OsStr::new(command), "--config".as_ref(), file.path().as_os_str()])
                .env("RUNTIME_DIRECTORY", runtime.path())
                .env("RUST_LOG", levels)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
        let output = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        let mut service = Self { child, listening: Vec::new(), output, log, config: file, runtime };
        service.read_listening(listeners);
        service
    }

    /// Reads the addresses on which it listens.
    pub(crate) fn read_listening(&mut self, listeners: usize) {
        let line = |_| self.output.recv_timeout(WAIT_TIMEOUT).expect("a line for each listener");
        let address = |line: String| line.strip_prefix("listening on ").unwrap().to_owned();
        self.listening = (0..listeners).map(line).map(address).collect();
    }

    /// A server on `n` channels on loopback.
    pub(crate) fn server(n: usize, allow: &str) -> Self {
        let listen: Vec<String> = (1..=n).map(|i| format!("\"127.0.0.{i}:0\"")).collect();
        let listen = listen.join(", ");
        Self::start("serve", &format!("listen = [{listen}]\nallow = [\"{allow}\"]\n"), n)
    }

    /// A SOCKS5 proxy to a server.
    pub(crate) fn proxy(server: &Self) -> Self {
        Self::start("proxy", &format!("socks = \"127.0.0.1:0\"\n{}", server.channels()), 1)
    }

    /// The channels to this server, for a client's configuration.
    pub(crate) fn channels(&self) -> String {
        let channels = self.listening.iter().map(|address| format!("server = \"{address}\"\n"));
        channels.fold(String::new(), |text, channel| text + "[[channel]]\n" + &channel)
    }

    /// The address of a listener.
    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        self.listening[index].split(": ").next().unwrap().parse().unwrap()
    }

    /// Waits for a log line with this text, and returns the line.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.log.recv_timeout(WAIT_TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("\"{text}\" is not in the log"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Replaces its configuration file.
    pub(crate) fn rewrite(&self, config: &str) {
        std::fs::write(self.config.path(), config).unwrap();
    }

    /// The output of `sunder status` with these arguments.
    pub(crate) fn status(&self, arguments: &[&str]) -> String {
        self.try_status(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same. It fails if the process is too busy to answer.
    pub(crate) fn try_status(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = sunder(["status"]);
        let command = command.args(arguments).env("RUNTIME_DIRECTORY", self.runtime.path());
        let output = command.output().unwrap();
        let message = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(message(output.stdout))
        } else {
            Err(message(output.stderr))
        }
    }

    /// The directory of its status socket.
    pub(crate) fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// The number of files in the directory of its status socket.
    pub(crate) fn sockets(&self) -> usize {
        std::fs::read_dir(self.runtime.path()).unwrap().count()
    }

    /// Waits for its end and returns the exit code; `None` if a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Selects another `sunder serve`, for comparisons.
pub(crate) const SERVE: &str = "SUNDER_SERVE";

/// The program for a command, with these arguments.
fn program<S: AsRef<OsStr>>(command: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let ours = sunder(arguments);
    let Some(other) = std::env::var_os(SERVE).filter(|_| command == "serve") else { return ours };
    let mut program = Command::new(other);
    program.args(ours.get_args()).stdin(Stdio::null());
    program
}

/// `sunder` with these arguments.
pub(crate) fn sunder<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(arguments).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// A file with this text.
pub(crate) fn configuration(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The lines that a process writes, as they arrive.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// `curl`, without the user's own settings.
pub(crate) fn curl<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--max-time", "60"]).args(arguments);
    for variable in ["http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The output of curl, which must have succeeded.
pub(crate) fn fetched(output: &Output) -> &[u8] {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {message}", output.status);
    &output.stdout
}

/// A web server on loopback that answers every request with `body`, and announces `len` bytes. If
/// `len` is larger, the answer is never complete.
pub(crate) fn web_server(body: Vec<u8>, len: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let body = body.clone();
            thread::spawn(move || answer(stream, &body, len));
        }
    });
    address
}

/// A client that disconnects early is not an error.
fn answer(mut stream: TcpStream, body: &[u8], len: usize) -> std::io::Result<()> {
    let request = BufReader::new(stream.try_clone()?).lines().map_while(Result::ok);
    if request.take_while(|line| !line.is_empty()).count() == 0 {
        return Ok(());
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    if body.len() < len {
        stream.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

/// `len` bytes without repetitions.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).flat_map(|i| (i * 0x9E37_79B9).to_be_bytes()).take(len).collect()
}
