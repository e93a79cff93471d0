//! A link by another emulator, `rattan` (crates.io), as a reference from outside.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::Host;
use crate::link::Conditions;
use crate::sandbox::SCRATCH;
use crate::search::{found, search_path};

/// The address of its right host.
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 2, 1, 1);

/// What to do where it is missing.
const INSTALL: &str = "install it: cargo install rattan --version 0.1.1 --locked";

/// How long it may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running `rattan`. It is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Rattan {
    child: Child,
    /// What it joins: left and right.
    pub(super) hosts: [Host; 2],
}

impl Rattan {
    /// Joins two hosts by a link with a rate and a delay, the same either way.
    pub(super) fn start(conditions: &Conditions) -> Result<Self, String> {
        let Some(rate) = conditions.rate_mbit else { return Err("rattan needs a rate".into()) };
        let [settings, name] =
            ["rattan.toml", "rattan.name"].map(|file| Path::new(SCRATCH).join(file));
        let io = |error| format!("cannot prepare rattan: {error}");
        fs::write(&settings, description(rate, conditions.delay_ms)).map_err(io)?;
        fs::write(&name, "").map_err(io)?;
        // The left host's command says what this run is called.
        let say =
            format!("echo $RATTAN_ID > {}.new; mv {0}.new {0}; exec sleep 1000", name.display());
        let program = found("rattan").ok_or(format!("there is no rattan; {INSTALL}"))?;
        let mut command = Command::new(program);
        command.env("PATH", search_path());
        command.arg("run").arg("-c").arg(&settings).args(["--left=sh", "--left=-c"]);
        command.arg(format!("--left={say}")).args(["--right=sleep", "--right=1000"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start rattan ({error}); {INSTALL}"))?;
        match hosts(&mut child, &name) {
            Ok(hosts) => Ok(Self { child, hosts }),
            Err(error) => {
                stop(&mut child);
                Err(error)
            }
        }
    }
}

impl Drop for Rattan {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// The hosts, once they are there.
fn hosts(child: &mut Child, name: &Path) -> Result<[Host; 2], String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let name = fs::read_to_string(name).unwrap_or_default();
        if !name.is_empty() {
            let host =
                |side| Host::at(side, Path::new(&format!("/run/netns/ns-{side}-{}", name.trim())));
            let both = host("left").and_then(|left| Ok([left, host("right")?]));
            return both.map_err(|error| format!("cannot enter rattan's hosts: {error}"));
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("rattan ended ({status}) before its link was there"));
        }
        if Instant::now() > deadline {
            return Err("rattan's link was not there within 10 s".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends it in the way in which it removes its hosts.
fn stop(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process(pid, Signal::INT);
    }
    let deadline = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Its settings: a queue, the rate and the delay, either way.
fn description(rate_mbit: f64, delay_ms: f64) -> String {
    let cells = ["up", "down"].map(|way| {
        format!(
            "[cells.{way}_rate]\ntype = \"Bw\"\nbw_type = \"NetworkLayer\"\nbandwidth = \"{rate_mbit}Mbps\"\n\
             queue = \"DropTail\"\nqueue_config = {{ packet_limit = 200 }}\n\
             [cells.{way}_delay]\ntype = \"Delay\"\ndelay = \"{delay_ms}ms\"\n"
        )
    });
    format!(
        "[env]\nmode = \"Isolated\"\n{}[links]\n\
         left = \"up_rate\"\nup_rate = \"up_delay\"\nup_delay = \"right\"\n\
         right = \"down_rate\"\ndown_rate = \"down_delay\"\ndown_delay = \"left\"\n",
        cells.concat()
    )
}
