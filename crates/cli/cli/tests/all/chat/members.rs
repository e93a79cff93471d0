//! A proxy and members, each a process, in a directory of their own; on this host, or each on an
//! emulated one with its name.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use keys::IdentitySecretKey;
use lab::EmulatedNetwork;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How members and the proxy are stopped.
pub(crate) const STOP_SIGNALS: [Signal; 2] = [Signal::TERM, Signal::KILL];

/// How long a line may take.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The directory, and the hosts if they are emulated: `proxy`, and one with each member's name.
pub(crate) struct Room {
    place: TempDir,
    /// Where the proxy listens.
    address: String,
    hosts: Option<EmulatedNetwork>,
}

/// A proxy that runs, killed when dropped.
pub(crate) struct Proxy(Child);

/// A member that talks, killed when dropped.
pub(crate) struct Member {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came while others were waited for.
    skipped: Vec<String>,
    errors: PathBuf,
}

fn sunder(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(arguments).current_dir(place).stdin(Stdio::null());
    command.env("XDG_STATE_HOME", place).env("RUNTIME_DIRECTORY", place.join("run"));
    command
}

pub(super) fn write_key(path: &Path, byte: u8) {
    fs::write(path, format!("{byte:02x}").repeat(32)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Room {
    /// Starts a proxy with a group of these members, which have joined. The first one is the
    /// administrator.
    pub(crate) fn open(names: &[&str]) -> (Self, Proxy) {
        Self::open_on(None, "127.0.0.1:0", names)
    }

    /// The same with further lines of the group in the proxy's configuration.
    pub(crate) fn open_with(names: &[&str], settings: &str) -> (Self, Proxy) {
        Self::open_as(None, "127.0.0.1:0", names, settings)
    }

    /// The same on emulated hosts, where the proxy listens on this address.
    pub(crate) fn open_on(
        hosts: Option<EmulatedNetwork>,
        address: &str,
        names: &[&str],
    ) -> (Self, Proxy) {
        Self::open_as(hosts, address, names, "")
    }

    fn open_as(
        hosts: Option<EmulatedNetwork>,
        address: &str,
        names: &[&str],
        settings: &str,
    ) -> (Self, Proxy) {
        let (room, proxy) = Self::open_empty(hosts, address, "");
        // The port that it has chosen.
        room.write_proxy("");
        room.add_group(&proxy, "friends", names, &room.address, settings);
        (room, proxy)
    }

    /// Starts a proxy without groups, with these lines in its configuration.
    pub(crate) fn open_empty(
        hosts: Option<EmulatedNetwork>,
        address: &str,
        settings: &str,
    ) -> (Self, Proxy) {
        let place = tempfile::tempdir().unwrap();
        let mut room = Self { place, address: address.into(), hosts };
        write_key(&room.path("proxy.key"), 7);
        room.write_proxy(settings);
        let (proxy, address, _) = Proxy::start(&room);
        room.address = address;
        (room, proxy)
    }

    /// Adds a group of these members, which have joined, and reach the proxy at this address. The
    /// first one is the administrator.
    pub(crate) fn add_group(
        &self,
        proxy: &Proxy,
        group: &str,
        names: &[&str],
        address: &str,
        settings: &str,
    ) {
        let config = format!("{}.toml", names[0]);
        let mut command = sunder(self.place.path(), &["chat", "init", "--config", &config]);
        command.args(["--name", names[0], "--group", group]);
        let key = IdentitySecretKey::new(&[7; 32]).public().to_string();
        command.args(["--proxy", address, "--proxy-key", &key]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.start(names[0], &mut command).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let group = String::from_utf8(output.stdout).unwrap();
        // The founder accepts another kind of exchange, and the others by their invitations.
        if let Some(engine) = settings.lines().find(|line| line.starts_with("engine")) {
            let text = fs::read_to_string(self.path(&config)).unwrap();
            fs::write(self.path(&config), format!("{text}{engine}\n")).unwrap();
        }
        let intervals = "min_interval_ms = 20\ninterval_ms = 1000\n";
        let text = fs::read_to_string(self.path("proxy.toml")).unwrap();
        self.configure(proxy, &format!("{text}{group}{intervals}{settings}"));
        if names.len() > 1 {
            let mut administrator = self.talk(names[0]);
            for name in &names[1..] {
                let code = administrator.invite(name);
                self.join(name, &code);
            }
            administrator.stop(Signal::TERM);
        }
    }

    /// Gives the proxy another configuration, and waits until it has read it.
    pub(crate) fn configure(&self, proxy: &Proxy, text: &str) {
        self.reload(proxy, text, "the configuration was read again");
    }

    /// Gives the proxy another configuration, and waits until it has logged a line with this text.
    pub(crate) fn reload(&self, proxy: &Proxy, text: &str, logged: &str) -> String {
        let lines = || -> Vec<String> {
            let log = self.log();
            log.lines().filter(|line| line.contains(logged)).map(str::to_owned).collect()
        };
        let before = lines().len();
        fs::write(self.path("proxy.toml"), text).unwrap();
        proxy.signal(Signal::HUP);
        self.wait_until(logged, || lines().len() > before);
        lines().pop().unwrap()
    }

    /// What the proxy has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("proxy.log")).unwrap_or_default()
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so() {
            assert!(Instant::now() < deadline, "not so: {what}\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts a command on a host.
    pub(crate) fn start(&self, host: &str, command: &mut Command) -> Child {
        match &self.hosts {
            None => command.spawn().unwrap(),
            Some(hosts) => hosts.host(host).unwrap().run(|| command.spawn()).unwrap().unwrap(),
        }
    }

    fn write_proxy(&self, settings: &str) {
        let address = &self.address;
        let text = format!(
            "identity = \"proxy.key\"\nlisten = \"{address}\"\nstate = \"proxy.state\"\n{settings}"
        );
        fs::write(self.path("proxy.toml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A command of a member, without its configuration.
    pub(crate) fn chat(&self, name: &str, arguments: &[&str]) -> Command {
        let config = format!("{name}.toml");
        sunder(self.place.path(), &[&["chat", "--config", &config], arguments].concat())
    }

    /// A member that talks by lines.
    pub(crate) fn talk(&self, name: &str) -> Member {
        let mut member = self.talk_unread(name);
        member.read();
        member
    }

    /// The same, whose lines nobody reads until [`Member::read`].
    pub(crate) fn talk_unread(&self, name: &str) -> Member {
        let errors = self.path(&format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(&errors).unwrap();
        let mut command = self.chat(name, &["--plain"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = self.start(name, &mut command);
        let input = child.stdin.take();
        Member { child, input, lines: channel().1, skipped: Vec::new(), errors }
    }

    /// What `sunder status` says of the proxy.
    pub(crate) fn status(&self) -> Value {
        let output = sunder(self.place.path(), &["status", "--json"]).output().unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(all[0]["kind"], "mix");
        all[0].clone()
    }

    /// How many rounds the proxy has closed since it was started.
    pub(crate) fn rounds(&self) -> u64 {
        self.status()["groups"][0]["rounds"].as_u64().unwrap()
    }

    /// Waits until this number of members takes part in a round.
    pub(crate) fn wait_for_participants(&self, count: u64) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let group = self.status()["groups"][0].clone();
            if group["participants"] == count {
                return;
            }
            assert!(Instant::now() < deadline, "not {count} participants: {group}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn join(&self, name: &str, code: &str) {
        let output = self.try_join(name, code);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A member has lost its key: the administrator removes it, and it joins again with another.
    pub(crate) fn lose(&self, administrator: &mut Member, name: &str) {
        administrator.forget();
        administrator.enter(&format!("/remove {name}"));
        administrator.wait_for("members bob");
        for suffix in ["toml", "key"] {
            fs::remove_file(self.path(&format!("{name}.{suffix}"))).unwrap();
        }
        fs::remove_dir_all(self.path(&format!("{name}.state"))).unwrap();
        let code = administrator.invite(name);
        self.join(name, &code);
    }

    /// A command in its directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        sunder(self.place.path(), arguments)
    }

    pub(crate) fn try_join(&self, name: &str, code: &str) -> Output {
        self.run_join(name, code, &[])
    }

    /// Joins under another name than that of the invitation.
    pub(crate) fn try_join_as(&self, name: &str, code: &str, wanted: &str) -> Output {
        self.run_join(name, code, &["--name", wanted])
    }

    /// Joins with these options.
    pub(crate) fn run_join(&self, name: &str, code: &str, options: &[&str]) -> Output {
        let config = format!("{name}.toml");
        let arguments = [&["chat", "join", "-", "--config", &config], options].concat();
        let mut command = sunder(self.place.path(), &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.start(name, &mut command);
        child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        // It waits for the administrator as long as it takes.
        let pid = Pid::from_child(&child);
        let (ended, has_ended) = channel();
        thread::spawn(move || {
            if has_ended.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output().unwrap();
        let _: Result<(), _> = ended.send(());
        output
    }

    /// The proxy's address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Has a member connect to another address from now on.
    pub(crate) fn set_proxy(&self, name: &str, address: &str) {
        let path = self.path(&format!("{name}.toml"));
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| {
            let is_it = line.starts_with("proxy =");
            if is_it { format!("proxy = \"{address}\"\n") } else { format!("{line}\n") }
        });
        fs::write(&path, lines.collect::<String>()).unwrap();
    }

    /// Has a member connect by a transport from now on.
    pub(crate) fn set_transport(&self, name: &str, transport: &str) {
        let path = self.path(&format!("{name}.toml"));
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("transport"));
        let lines = lines.map(|line| match line.starts_with("proxy =") {
            false => line.to_owned(),
            true if transport == "micss" => {
                format!("proxy = \"{},{}\"", self.address, self.address)
            }
            true => format!("proxy = \"{}\"", self.address),
        });
        let lines: Vec<String> = lines.collect();
        fs::write(&path, format!("{}\ntransport = \"{transport}\"\n", lines.join("\n"))).unwrap();
    }
}

impl Proxy {
    /// Starts it. Also its address and key.
    fn start(room: &Room) -> (Self, String, String) {
        let mut command = sunder(room.place.path(), &["mix", "--config", "proxy.toml"]);
        let log = fs::File::options().create(true).append(true).open(room.path("proxy.log"));
        command.stdout(Stdio::piped()).stderr(log.unwrap());
        let mut child = room.start("proxy", &mut command);
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = output.next().unwrap().unwrap();
        let key = output.next().unwrap().unwrap();
        let address = address.strip_prefix("listening on ").unwrap().to_owned();
        let key = key.strip_prefix("proxy_key = ").unwrap().trim_matches('"').to_owned();
        (Self(child), address, key)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops it, and starts it again.
    pub(crate) fn restart(mut self, room: &Room, signal: Signal) -> Self {
        self.signal(signal);
        self.0.wait().unwrap();
        Self::start(room).0
    }

    /// Stops it.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        self.0.wait().unwrap();
    }

    /// Starts that of a room again, which was stopped.
    pub(crate) fn start_again(room: &Room) -> Self {
        Self::start(room).0
    }

    /// Kills it, and starts it without its state.
    pub(crate) fn restart_without_state(self, room: &Room) -> Self {
        self.restart_after(room, || fs::remove_dir_all(room.path("proxy.state")).unwrap())
    }

    /// Kills it, and starts it after something has changed.
    pub(crate) fn restart_after(mut self, room: &Room, change: impl FnOnce()) -> Self {
        self.signal(Signal::KILL);
        self.0.wait().unwrap();
        change();
        Self::start(room).0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for file in fs::read_dir(self.place.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|it| it == "log") {
                let log = fs::read_to_string(file.path()).unwrap_or_default();
                eprintln!("{}:\n{log}", file.path().display());
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Member {
    /// An invitation, from the administrator.
    pub(crate) fn invite(&mut self, name: &str) -> String {
        self.enter(&format!("/invite {name}"));
        self.wait_for("invitation").split_once(' ').unwrap().1.to_owned()
    }

    /// Enters a line.
    pub(crate) fn enter(&self, line: &str) {
        let mut input = self.input.as_ref().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Reads its lines from now on.
    pub(crate) fn read(&mut self) {
        let output = BufReader::new(self.child.stdout.take().expect("nobody reads it yet"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        self.lines = lines;
    }

    /// Whether a line that begins with these words has come.
    pub(crate) fn has_printed(&mut self, begin: &str) -> bool {
        self.skipped.extend(self.lines.try_iter());
        self.skipped.iter().any(|line| line.starts_with(begin))
    }

    /// Enters a line, and nothing else.
    pub(crate) fn enter_last(mut self, line: &str) -> Self {
        self.enter(line);
        self.input = None;
        self
    }

    /// Waits for the next line that begins with these words. Others are kept.
    pub(crate) fn wait_for(&mut self, begin: &str) -> String {
        let is_it = |line: &String| line == begin || line.starts_with(&format!("{begin} "));
        if let Some(at) = self.skipped.iter().position(is_it) {
            return self.skipped.remove(at);
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let line = self.next(deadline, begin);
            if is_it(&line) {
                return line;
            }
            self.skipped.push(line);
        }
    }

    /// Forgets what it has printed until now.
    pub(crate) fn forget(&mut self) {
        self.skipped.clear();
        while self.lines.try_recv().is_ok() {}
    }

    fn next(&self, deadline: Instant, what: &str) -> String {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).unwrap_or_else(|_| {
            let errors = fs::read_to_string(&self.errors).unwrap_or_default();
            panic!("no line {what}: {:?}\n{errors}", self.skipped)
        })
    }
}

impl Member {
    /// Says something to a member. Whether it was taken.
    pub(crate) fn say(&mut self, to: &str, text: &str) -> bool {
        self.enter(&format!("@{to} {text}"));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let line = self.next(deadline, "queued or refused");
            if line.starts_with("queued ") {
                return true;
            }
            if line.starts_with("refused ") {
                return false;
            }
            self.skipped.push(line);
        }
    }

    /// The next messages: `NAME TEXT` each.
    pub(crate) fn messages(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.wait_for("message")["message ".len()..].to_owned()).collect()
    }

    /// Ends it. Returns the messages that it had and that were not waited for.
    pub(crate) fn stop(&mut self, signal: Signal) -> Vec<String> {
        self.signal(signal);
        self.child.wait().unwrap();
        let lines: Vec<String> = self.skipped.drain(..).chain(self.lines.iter()).collect();
        let messages = lines.iter().filter_map(|line| line.strip_prefix("message "));
        messages.map(str::to_owned).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) fn ends(self) -> ExitStatus {
        self.ends_with_log().0
    }

    /// The same. Also what it has written to standard error.
    pub(crate) fn ends_with_log(mut self) -> (ExitStatus, String) {
        // Its output ends with it.
        while self.lines.recv_timeout(TIMEOUT).is_ok() {}
        let status = self.child.wait().unwrap();
        (status, fs::read_to_string(&self.errors).unwrap_or_default())
    }

    /// Whoever reads its lines has gone.
    pub(crate) fn close_output(&mut self) {
        self.child.stdout = None;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
