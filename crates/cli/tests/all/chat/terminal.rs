//! The chat in a terminal: driven through a pseudo-terminal, and read as a terminal shows it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::members::Room;

/// How long something may take to be shown.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A program in a terminal, killed when dropped.
struct Terminal {
    child: Child,
    keys: File,
    /// The program's end, which keeps the settings after the program has ended.
    device: OwnedFd,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a command in a terminal of this size.
    fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let device = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        // Of util-linux: the terminal becomes the one of a new session, so that its size and its
        // signals reach the program.
        let mut started = Command::new("setsid");
        started.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        started.current_dir(command.get_current_dir().unwrap()).env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            started.env(name, value.unwrap());
        }
        let stdio = || Stdio::from(device.try_clone().unwrap());
        started.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let (sender, output) = channel();
        let mut shown = File::from(keys.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        let screen = vt100::Parser::new(rows, columns, 0);
        tcsetwinsize(&device, size(rows, columns)).unwrap();
        let child = started.spawn().unwrap();
        Self { child, keys: File::from(keys), device, output, screen }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.device, size(rows, columns)).unwrap();
    }

    /// Waits until this is shown.
    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    fn wait_until(&mut self, what: &str, is_shown: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_shown(self.screen.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("{what} is not shown:\n{}", self.screen.screen().contents());
            };
            self.screen.process(&bytes);
        }
    }

    /// Waits until the program has ended, and checks that the terminal is as it was.
    fn check_restored(&mut self) {
        self.child.wait().unwrap();
        let modes = tcgetattr(&self.device).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        self.wait_until("the screen before", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn a_person_talks_in_a_terminal() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol"]);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let mut alice = Terminal::start(&room.chat("alice", &[]), 12, 70);
    alice.wait_for("3 take part");
    // The name is completed, and kept.
    alice.press("@b\tgood morning\r");
    assert_eq!(bob.wait_for("message"), "message alice good morning");
    alice.wait_for("→ bob: good morning ✓");
    alice.wait_for("@bob>");
    alice.press("and again\r");
    assert_eq!(bob.wait_for("message"), "message alice and again");
    bob.enter("@alice this has \x1b[2J nothing to say to the terminal");
    // The library of the test does not keep the character in place of the escape.
    alice.wait_for("[2J");
    alice.wait_for("nothing to say to the terminal");
    // Back and forth.
    for at in 0..30 {
        bob.enter(&format!("@alice line {at}"));
    }
    alice.wait_for("line 29");
    alice.press("\x1b[5~\x1b[5~");
    alice.wait_for("scrolled");
    bob.enter("@alice one more");
    alice.wait_for("1 unread");
    alice.press("\x1b[F");
    alice.wait_for("bob: one more");
    alice.wait_until("no unread", |screen| !screen.contents().contains("unread"));
    // In a narrow window.
    alice.resize(6, 24);
    alice.wait_until("a status line of the new size", |screen| {
        screen.contents().lines().nth(4).is_some_and(|line| line.starts_with(" 3 take part"))
    });
    alice.press("\x03");
    alice.check_restored();
}

#[test]
fn the_terminal_is_restored_after_a_signal() {
    let (room, _proxy) = Room::open(&["alice"]);
    let mut alice = Terminal::start(&room.chat("alice", &[]), 24, 80);
    alice.wait_for("You are alice");
    // The one of the chat is the child of what has made the session.
    let id = alice.child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let chat = children.split_whitespace().next().map_or(id, |child| child.parse().unwrap());
    let chat = Pid::from_raw(i32::try_from(chat).unwrap()).unwrap();
    kill_process(chat, Signal::TERM).unwrap();
    alice.check_restored();
}
