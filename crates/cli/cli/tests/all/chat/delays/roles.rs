//! What the members do meanwhile.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::fcntl_setpipe_size;

use super::super::members::Room;

/// How long messages may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The capacity of a member's output, in bytes: the least that the kernel has. The messages of a
/// block do not fit in.
const OUTPUT_LEN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberRole {
    Idle,
    /// The same. It should not be told apart from the first one.
    AlsoIdle,
    Sends,
    Receives,
    /// Each time that it has its state written takes 50 ms longer.
    ReceivesWithSlowDisk,
    /// Nobody reads its output.
    ReceivesUnread,
    /// Idle, and each transmission comes 30 us later.
    Delayed,
}

impl MemberRole {
    pub(super) const ALL: [Self; 7] = [
        Self::Idle,
        Self::AlsoIdle,
        Self::Sends,
        Self::Receives,
        Self::ReceivesWithSlowDisk,
        Self::ReceivesUnread,
        Self::Delayed,
    ];

    pub(super) fn receives(self) -> bool {
        matches!(self, Self::Receives | Self::ReceivesWithSlowDisk | Self::ReceivesUnread)
    }
}

/// A member that talks, killed when dropped.
pub(super) struct Actor {
    child: Child,
    input: ChildStdin,
    delivered: Arc<AtomicUsize>,
    is_unread: Arc<(Mutex<bool>, Condvar)>,
    slow: PathBuf,
    delayed: PathBuf,
}

impl Actor {
    pub(super) fn start(room: &Room, name: &str, shim: &Path) -> Self {
        let [slow, delayed] = ["slow", "delayed"].map(|what| room.path(&format!("{name}.{what}")));
        let log = File::create(room.path(&format!("{name}.log"))).unwrap();
        let mut command = room.chat(name, &["--plain"]);
        command.env("LD_PRELOAD", shim).env("SHIM_SLOW", &slow).env("SHIM_DELAYED", &delayed);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = room.start(name, &mut command);
        let output = child.stdout.take().unwrap();
        fcntl_setpipe_size(&output, OUTPUT_LEN).unwrap();
        let (delivered, is_unread) = (Arc::default(), Arc::default());
        let (count, unread) = (Arc::clone(&delivered), Arc::clone(&is_unread));
        thread::spawn(move || read(output, &count, &unread));
        Self { input: child.stdin.take().unwrap(), child, delivered, is_unread, slow, delayed }
    }

    /// Takes a role.
    pub(super) fn begin(&mut self, role: MemberRole) {
        self.delivered.store(0, Ordering::Relaxed);
        match role {
            MemberRole::ReceivesWithSlowDisk => fs::write(&self.slow, "").unwrap(),
            MemberRole::Delayed => fs::write(&self.delayed, "").unwrap(),
            MemberRole::ReceivesUnread => *self.is_unread.0.lock().unwrap() = true,
            _ => {}
        }
    }

    /// Has no role any more.
    pub(super) fn end(&mut self) {
        for file in [&self.slow, &self.delayed] {
            if file.exists() {
                fs::remove_file(file).unwrap();
            }
        }
        *self.is_unread.0.lock().unwrap() = false;
        self.is_unread.1.notify_all();
    }

    /// Says something to another member, which is longer than a word: with those of a block, the
    /// output of its receiver is full if nobody reads it.
    pub(super) fn say(&mut self, to: &str) {
        writeln!(self.input, "@{to} {}", "and so on ".repeat(17)).unwrap();
    }

    /// Waits until as many messages have arrived since it took its role.
    pub(super) fn wait_until_delivered(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.delivered.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "{:?} of {count} arrived", self.delivered);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Reads the output, except while it is to be unread, and counts the messages that have arrived.
fn read(output: ChildStdout, delivered: &AtomicUsize, is_unread: &(Mutex<bool>, Condvar)) {
    for line in BufReader::with_capacity(64, output).lines().map_while(Result::ok) {
        if line.starts_with("delivered") {
            delivered.fetch_add(1, Ordering::Relaxed);
        }
        let guard = is_unread.0.lock().unwrap();
        drop(is_unread.1.wait_while(guard, |is_unread| *is_unread).unwrap());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles what is loaded into the processes. Returns its path.
pub(super) fn compile_shim(to: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/chat/delays/shim.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(to).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "the shim is compiled");
    to.to_owned()
}
