//! Running processes and a web server, for two test programs. What one of them uses alone is
//! elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// The time limit for all conditions.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// `sunder serve` or `sunder proxy`, killed when dropped.
pub(crate) struct Service {
    pub(crate) child: Child,
    /// The addresses on which it listens, as it reports.
    pub(crate) listening: Vec<String>,
    output: Receiver<String>,
    pub(crate) log: Receiver<String>,
    /// Has its configuration and the directory of its status socket.
    pub(crate) place: TempDir,
}

/// The names of these.
pub(crate) const CONFIG: &str = "config.toml";
const RUNTIME: &str = "runtime";

impl Service {
    /// Starts `sunder COMMAND` with this configuration and these log levels, and waits until it
    /// listens on `listeners` addresses.
    pub(crate) fn start_logging(
        command: &str,
        config: &str,
        listeners: usize,
        levels: &str,
    ) -> Self {
        let place = TempDir::new().unwrap();
        let [file, runtime] = [CONFIG, RUNTIME].map(|name| place.path().join(name));
        fs::write(&file, config).unwrap();
        fs::create_dir(&runtime).unwrap();
        let mut child =
            program(command, [OsStr::new(command), "--config".as_ref(), file.as_os_str()])
                .env("RUNTIME_DIRECTORY", runtime)
                .env("RUST_LOG", levels)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
        let output = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        let mut service = Self { child, listening: Vec::new(), output, log, place };
        service.read_listening(listeners);
        service
    }

    /// Reads the addresses on which it listens.
    pub(crate) fn read_listening(&mut self, listeners: usize) {
        let address = |_| {
            let line = self.output.recv_timeout(WAIT_TIMEOUT).unwrap_or_else(|_| {
                let log: Vec<String> = self.log.try_iter().collect();
                panic!("no line for each listener: {log:?}")
            });
            line.strip_prefix("listening on ").unwrap().to_owned()
        };
        self.listening = (0..listeners).map(address).collect();
    }

    /// The address of a listener.
    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        self.listening[index].split(": ").next().unwrap().parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output of `sunder status` with these arguments. It fails if the process is too busy to
    /// answer.
    pub(crate) fn try_status(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = sunder(["status"]);
        let command = command.args(arguments).env("RUNTIME_DIRECTORY", self.runtime());
        let output = command.output().unwrap();
        let message = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(message(output.stdout))
        } else {
            Err(message(output.stderr))
        }
    }

    /// The directory of its status socket.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.place.path().join(RUNTIME)
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
