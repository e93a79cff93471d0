//! Services with usual settings, what is done with them, and clients.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::processes::{CONFIG, Service, WAIT_TIMEOUT};

impl Service {
    /// Starts `sunder COMMAND` with this configuration and waits until it listens on `listeners`
    /// addresses.
    pub(crate) fn start(command: &str, config: &str, listeners: usize) -> Self {
        Self::start_logging(command, config, listeners, "info,sunder_micss=debug")
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

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Replaces its configuration file.
    pub(crate) fn rewrite(&self, config: &str) {
        fs::write(self.place.path().join(CONFIG), config).unwrap();
    }

    /// The output of `sunder status` with these arguments.
    pub(crate) fn status(&self, arguments: &[&str]) -> String {
        self.try_status(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The number of files in the directory of its status socket.
    pub(crate) fn sockets(&self) -> usize {
        fs::read_dir(self.runtime()).unwrap().count()
    }

    /// Waits for its end and returns the exit code; `None` if a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// A file with this text.
pub(crate) fn configuration(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
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

/// `len` bytes without repetitions.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).flat_map(|i| (i * 0x9E37_79B9).to_be_bytes()).take(len).collect()
}
