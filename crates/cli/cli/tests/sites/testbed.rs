//! A controller and two sites, each on an emulated host, that a switch connects.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection};
use serde_json::Value;

use super::emulation::{Process, network, until};

/// The program.
pub(crate) const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// The port of each agent.
pub(crate) const PORT: u16 = 7100;

/// The conditions of the path between any two hosts are those of two links.
const TOPOLOGY: &str = "
measure = { driver = \"accuracy\", values = {} }
[hosts]
controller = {}
fra = {}
syd = {}
switch = { forwards = true }
[links.c]
hosts = [\"controller\", \"switch\"]
both = { rate_mbit = 100, delay_ms = 5 }
[links.f]
hosts = [\"fra\", \"switch\"]
both = { rate_mbit = 100, delay_ms = 5 }
[links.s]
hosts = [\"syd\", \"switch\"]
both = { rate_mbit = 100, delay_ms = 5 }
";

/// The sites with their agents.
pub(crate) struct SiteTestbed {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
    pub(crate) fra: Option<Process>,
    pub(crate) syd: Option<Process>,
    /// After how many seconds an agent takes a silent controller for lost.
    silence: u32,
}

impl SiteTestbed {
    /// Sites with agents that take a controller that is silent for 5 s for lost.
    pub(crate) fn new() -> Self {
        Self::with_silence(5)
    }

    /// The same with another time, in seconds.
    pub(crate) fn with_silence(silence: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let network = network(TOPOLOGY, directory.path());
        for (name, digits) in [("controller", "01"), ("fra", "02"), ("syd", "03"), ("other", "04")]
        {
            let file = directory.path().join(format!("{name}.key"));
            fs::write(&file, digits.repeat(32)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut testbed = Self { network, directory, fra: None, syd: None, silence };
        testbed.fra = Some(testbed.agent("fra"));
        testbed.syd = Some(testbed.agent("syd"));
        testbed
    }

    /// A file of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What a program has written to a file of the test.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The public key of a party.
    pub(crate) fn key(&self, name: &str) -> String {
        let file = self.path(&format!("{name}.key"));
        let key = Command::new(SUNDER).args(["transport", "key", "--identity"]).arg(file).output();
        String::from_utf8(key.unwrap().stdout).unwrap().trim().to_owned()
    }

    /// Where the agent of a site listens.
    pub(crate) fn address(&self, site: &str) -> String {
        let address = self.network.address(site, &site[..1]).unwrap();
        format!("{address}:{PORT}")
    }

    /// Starts the agent of a site, and waits until it listens.
    pub(crate) fn agent(&self, site: &str) -> Process {
        let mut agent = None;
        until("the agent listens", || {
            // The one before may still have the port.
            if agent.is_none() || self.text(&format!("{site}.log")).contains("cannot listen") {
                agent = Some(self.start_agent(site));
            }
            self.text(&format!("{site}.log")).contains("--sites")
        });
        agent.unwrap()
    }

    fn start_agent(&self, site: &str) -> Process {
        let log = self.path(&format!("{site}.log"));
        let mut command = Command::new(SUNDER);
        command.args(["lab", "agent", "--listen", &self.address(site), "--peer"]);
        command.arg(self.key("controller")).args(["--silence", &self.silence.to_string()]);
        command.arg("--identity").arg(self.path(&format!("{site}.key")));
        command.current_dir(self.directory.path());
        Process::start(self.network.host(site).unwrap(), &mut command, &log)
    }

    /// The option for the sites.
    pub(crate) fn sites(&self) -> String {
        let site = |name: &str| format!("{name}={}/{}", self.address(name), self.key(name));
        format!("{},{}", site("fra"), site("syd"))
    }

    /// Starts an experiment at the sites. Its results are in `NAME-results`.
    pub(crate) fn run(&self, name: &str, text: &str, more: &[&str]) -> Child {
        self.run_with(name, text, &self.sites(), "controller", more)
    }

    /// The same with other sites, and with the key of another party.
    pub(crate) fn run_with(
        &self,
        name: &str,
        text: &str,
        sites: &str,
        party: &str,
        more: &[&str],
    ) -> Child {
        let identity = self.path(&format!("{party}.key"));
        let identity = identity.to_str().unwrap();
        self.start(name, text, &[&["--sites", sites, "--identity", identity], more].concat())
    }

    /// Starts an experiment on an emulated network.
    pub(crate) fn run_emulated(&self, name: &str, text: &str) -> Child {
        self.start(name, text, &[])
    }

    /// The same with more options.
    pub(crate) fn run_emulated_with(&self, name: &str, text: &str, more: &[&str]) -> Child {
        self.start(name, text, more)
    }

    /// The names of the interfaces of a site.
    pub(crate) fn interfaces(&self, site: &str) -> Vec<String> {
        let devices = self.at_site(site, || fs::read_to_string("/proc/thread-self/net/dev"));
        let devices = devices.unwrap();
        let names = devices.lines().filter_map(|line| line.split_once(':'));
        let mut names: Vec<String> = names.map(|(name, _)| name.trim().to_owned()).collect();
        names.sort();
        names
    }

    fn start(&self, name: &str, text: &str, options: &[&str]) -> Child {
        let file = format!("{name}.toml");
        fs::write(self.path(&file), text).unwrap();
        let mut command = Command::new(SUNDER);
        command.args(["lab", "run", &file, "--json", "--out", &format!("{name}-results")]);
        command.args(options).current_dir(self.directory.path());
        command.env("XDG_STATE_HOME", self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let host = self.network.host("controller").unwrap();
        host.run(|| command.spawn()).unwrap().unwrap()
    }

    /// Does something on the host of the controller.
    pub(crate) fn at_controller<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.at_site("controller", work)
    }

    /// Does something on the host of a site.
    pub(crate) fn at_site<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        self.network.host(host).unwrap().run(work).unwrap()
    }

    /// Changes the conditions of a link.
    pub(crate) fn change(&self, link: &str, change: impl Fn(&mut EmulatedLinkConditions)) {
        for direction in [LinkDirection::Forward, LinkDirection::Back] {
            let mut conditions = self.network.conditions(link, direction).unwrap();
            change(&mut conditions);
            self.network.link(link).unwrap().set(direction, conditions).unwrap();
        }
    }

    /// The lines of the journal of a run that are trials.
    pub(crate) fn trials(&self, name: &str) -> Vec<Value> {
        let text = self.text(&format!("{name}-results/trials.jsonl"));
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The output of a run that has succeeded.
pub(crate) fn succeeded(run: Child) -> Output {
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What a run has printed.
pub(crate) fn results(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}
