//! The chat in a terminal: driven through a pseudo-terminal, and read as a terminal shows it.

use std::fs::{self, File};
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
const TIMEOUT: Duration = Duration::from_secs(90);

/// What is drawn for characters that the library of the test draws with fewer cells than some
/// terminals, or not at all.
const DRAWN: [(&str, &str); 3] = [("\u{d4e}", "p"), ("ж", "жж"), ("\u{fffd}", "?")];

/// Whether the program has asked the terminal not to wrap. The library of the test wraps anyway.
#[derive(Default)]
struct WrapRequest {
    is_off: bool,
}

impl vt100::Callbacks for WrapRequest {
    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        if first == Some(b'?') && parameters == [[7]] {
            self.is_off = last == 'l';
        }
    }
}

/// A program in a terminal, killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    /// The program's end, which keeps the settings after the program has ended.
    device: OwnedFd,
    output: Receiver<Vec<u8>>,
    /// The bytes of a character that has not come completely.
    begun: Vec<u8>,
    screen: vt100::Parser<WrapRequest>,
}

impl Terminal {
    /// Starts a member's chat in a terminal of this size.
    pub(crate) fn start(room: &Room, member: &str, size: [u16; 2]) -> Self {
        Self::start_with(room, member, &[], size)
    }

    /// The same with these options.
    pub(crate) fn start_with(
        room: &Room,
        member: &str,
        options: &[&str],
        [rows, columns]: [u16; 2],
    ) -> Self {
        let command = room.chat(member, options);
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
        // Times are those of a zone without changes.
        started.env("TZ", "UTC");
        let (sender, output) = channel();
        let mut shown = File::from(keys.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        let screen = vt100::Parser::new_with_callbacks(rows, columns, 0, WrapRequest::default());
        tcsetwinsize(&device, size(rows, columns)).unwrap();
        let child = room.start(member, &mut started);
        Self { child, keys: File::from(keys), device, output, begun: Vec::new(), screen }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.device, size(rows, columns)).unwrap();
    }

    /// Waits until this is shown.
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    /// Waits until these words are shown, in one row or more.
    pub(crate) fn wait_for_words(&mut self, text: &str) {
        self.wait_until(text, |screen| {
            let words: Vec<_> = screen.contents().split_whitespace().map(str::to_owned).collect();
            words.join(" ").contains(text)
        });
    }

    pub(crate) fn wait_until(&mut self, what: &str, is_shown: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_shown(self.screen.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("{what} is not shown:\n{}", self.screen.screen().contents());
            };
            self.show(&bytes);
        }
    }

    fn show(&mut self, bytes: &[u8]) {
        self.begun.extend(bytes);
        let complete = match std::str::from_utf8(&self.begun) {
            Ok(text) => text.len(),
            Err(error) => {
                assert_eq!(error.error_len(), None, "the program writes UTF-8");
                error.valid_up_to()
            }
        };
        let text: Vec<u8> = self.begun.drain(..complete).collect();
        let text = String::from_utf8(text).unwrap();
        let text = DRAWN.iter().fold(text, |text, (given, drawn)| text.replace(given, drawn));
        self.screen.process(text.as_bytes());
    }

    /// Whether the terminal was asked not to continue a row in the row below.
    pub(crate) fn is_wrap_off(&self) -> bool {
        self.screen.callbacks().is_off
    }

    /// The rows that are shown.
    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.screen.screen();
        screen.rows(0, screen.size().1).collect()
    }

    /// The same with escape sequences for their colours, for `scripts/terminal-picture`.
    pub(crate) fn rows_with_colours(&self) -> String {
        let screen = self.screen.screen();
        let (rows, columns) = screen.size();
        let mut text = String::new();
        for row in 0..rows {
            let mut codes = String::new();
            for cell in (0..columns).filter_map(|column| screen.cell(row, column)) {
                let before = std::mem::replace(&mut codes, codes_of(cell));
                if codes != before {
                    text.extend(["\x1b[0", &codes, "m"]);
                }
                text.push_str(if cell.has_contents() { cell.contents() } else { " " });
            }
            text.push_str("\x1b[0m\n");
        }
        text
    }

    /// Checks that no other screen is used: everything is below what was there before.
    pub(crate) fn check_drawn_nothing(&self) {
        assert!(!self.screen.screen().alternate_screen());
    }

    /// Sends the chat a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // It is the child of what has made the session.
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let chat = children.split_whitespace().next().map_or(id, |child| child.parse().unwrap());
        let chat = Pid::from_raw(i32::try_from(chat).unwrap()).unwrap();
        kill_process(chat, signal).unwrap();
    }

    /// Waits until the program has ended, and checks that the terminal is as it was.
    pub(crate) fn check_restored(&mut self) {
        self.child.wait().unwrap();
        let modes = tcgetattr(&self.device).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        self.wait_until("the screen before", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
        assert!(!self.is_wrap_off());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The codes of a cell's style, each after a semicolon.
fn codes_of(cell: &vt100::Cell) -> String {
    let mut codes = String::new();
    for (is_set, code) in [(cell.bold(), ";1"), (cell.dim(), ";2"), (cell.inverse(), ";7")] {
        codes.push_str(if is_set { code } else { "" });
    }
    if let vt100::Color::Idx(colour @ 0..8) = cell.fgcolor() {
        codes.extend([";3", &colour.to_string()]);
    }
    codes
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
