//! Scripts of strangers, contained at sites, and what they attack.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::emulation::until;
use super::stretched::EMULATE;
use super::testbed::{PORT, SiteTestbed, results, succeeded};

const PAIR: &str = r#"
about = "Scripts of a stranger"
[hosts.client]
site = "fra"
[hosts.server]
site = "syd"
[links.path]
hosts = ["client", "server"]
[measure]
driver = "scripts"
options = { scripts = "pair", client = "client", server = "server", transport = "tcp", timeout_s = 30, limits = { memory_mib = 128, output_mib = 1 } }
[measure.values]
exit = { json = "/client_exit" }
[measure.texts]
result = { json = "/result" }
limit = { json = "/client/limit" }
contained = { json = "/contained" }
"#;

const LISTENING: &str = "exec python3 -m http.server 80 --bind \"$2\"\n";

/// Whether the tests can run here; says so if not.
fn is_possible() -> bool {
    let has_bubblewrap = Command::new("bwrap").arg("--version").output().is_ok();
    if !has_bubblewrap {
        println!("SKIPPED: there is no bwrap; apt install bubblewrap");
    }
    has_bubblewrap
}

/// Runs a pair of scripts. Returns the first trial, and what the client has printed.
fn performed(testbed: &SiteTestbed, server: &str, client: &str) -> (serde_json::Value, String) {
    performed_in(testbed, PAIR, server, client)
}

/// The same in another experiment.
fn performed_in(
    testbed: &SiteTestbed,
    text: &str,
    server: &str,
    client: &str,
) -> (serde_json::Value, String) {
    let pair = testbed.path("pair");
    let _ = fs::remove_dir_all(&pair);
    fs::create_dir(&pair).unwrap();
    fs::write(pair.join("web-server.sh"), server).unwrap();
    fs::write(pair.join("web-client.sh"), client).unwrap();
    fs::write(pair.join("page"), "a page\n").unwrap();
    let _ = fs::remove_dir_all(testbed.path("pair-results"));
    let results = results(&succeeded(testbed.run("pair", text, &[EMULATE])));
    let output = fs::read_to_string(testbed.path("pair-results/1-client.log")).unwrap();
    (results["trials"][0].clone(), output)
}

pub(crate) fn contained_pair() {
    if !is_possible() {
        return;
    }
    let testbed = SiteTestbed::new();
    // The server's port is open to the other site, as on an emulated network.
    let client = "curl --silent --fail \"http://$1/page\" && id -u && test -x /dev/shm/sunder\n";
    let (trial, output) = performed(&testbed, LISTENING, client);
    assert_eq!(trial["texts"]["result"], "ok", "{trial} {output}");
    assert_eq!(output, "a page\n1000\n");
    assert_ne!(trial["texts"]["contained"], "not contained", "{trial}");
    // Its limits are those of the experiment.
    let endless = "trap '' TERM; yes\n";
    let (trial, _) = performed(&testbed, LISTENING, endless);
    assert_eq!(trial["texts"]["limit"], "output", "{trial}");
    // A folder that has a file of the controlling machine is refused before anything is sent.
    symlink(testbed.path("controller.key"), testbed.path("pair/link")).unwrap();
    let output = testbed.run("leading-out", PAIR, &[EMULATE]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("link: leads to "), "{stderr}");
    fs::remove_file(testbed.path("pair/link")).unwrap();
    // On the machine's own network, nothing would be contained.
    let output = testbed.run("pair", PAIR, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("scripts are contained at sites only on emulated links"), "{stderr}");
    let machine = PAIR.replace("transport =", "contain = \"vm\", transport =");
    let output = testbed.run("machine", &machine, &[EMULATE]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("scripts have no virtual machines at sites"), "{stderr}");
}

/// Prints what could be reached of `HOST:PORT...`, and the names of interfaces.
const REACH: &str = r"cat > reach.py <<'END'
import socket, sys
for target in sys.argv[1:]:
  host, port = target.rsplit(':', 1)
  try:
    socket.create_connection((host, int(port)), 2)
    print('reached', target)
  except OSError: pass
  udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
  udp.settimeout(0.5)
  try:
    udp.sendto(b'x' * 100, (host, int(port)))
    udp.recv(100)
    print('answered', target)
  except OSError: pass
for kind in [socket.SOCK_RAW, socket.SOCK_DGRAM]:
  for family in [socket.AF_PACKET, 40]:
    try:
      socket.socket(family, kind)
      print('opened', family)
    except OSError: pass
try:
  open('/dev/net/tun', 'r+b')
  print('opened tun')
except OSError: pass
try:
  socket.getaddrinfo('example.com', 80)
  print('resolved')
except OSError: pass
print(sorted(name for _, name in socket.if_nameindex()))
END
exec python3 reach.py ";

pub(crate) fn attacked_networks() {
    if !is_possible() {
        return;
    }
    let testbed = SiteTestbed::new();
    // A service of each machine, of its own and for all, and one of a third party.
    let listen =
        |host: &str, address: &str| testbed.at_site(host, || TcpListener::bind(address).unwrap());
    let mut targets = Vec::new();
    let mut listeners = Vec::new();
    for host in ["fra", "syd", "controller"] {
        listeners.extend([listen(host, "127.0.0.1:7600"), listen(host, "0.0.0.0:7601")]);
        let address = ip(&testbed, host);
        // Its services, the port of an agent, and those of links.
        targets.extend([7601, PORT, PORT + 1, PORT + 2].map(|port| format!("{address}:{port}")));
    }
    targets.extend(["127.0.0.1:7600", "127.0.0.1:7601", "10.0.0.254:80"].map(str::to_owned));
    targets.extend(["169.254.169.254:80", "1.1.1.1:53", "10.0.1.1:7601"].map(str::to_owned));
    // The same targets are there for programs of the machine.
    let own = ip(&testbed, "syd");
    let reached = testbed.at_site("fra", || TcpStream::connect(format!("{own}:7601")));
    assert!(reached.is_ok());
    let client = format!("{REACH}{}\n", targets.join(" "));
    let (trial, output) = performed(&testbed, LISTENING, &client);
    assert_eq!(trial["texts"]["result"], "ok", "{trial}");
    let only_links = "['lo', 'path']\n";
    assert_eq!(output, only_links, "{trial}");
}

/// Another host of the client's site, which has a link to the server only.
const NEIGHBOUR: &str = r#"
[hosts.neighbour]
site = "fra"
[links.side]
hosts = ["neighbour", "server"]
[[programs]]
host = "neighbour"
run = ["python3", "-m", "http.server", "7700"]
listens = 7700
"#;

pub(crate) fn attacked_neighbour() {
    if !is_possible() {
        return;
    }
    let testbed = SiteTestbed::new();
    let text = format!("{PAIR}{NEIGHBOUR}");
    // The server has a link to it. The addresses are those of the second link.
    let server = "curl --silent --fail --output /dev/null http://10.0.1.1:7700/ || exit 9\n\
         exec python3 -m http.server 80 --bind \"$2\"\n";
    let client = format!("{REACH}10.0.1.1:7700 10.0.1.2:80 127.0.0.1:7700 0.0.0.0:7700\n");
    let (trial, output) = performed_in(&testbed, &text, server, &client);
    assert_eq!(trial["texts"]["result"], "ok", "{trial}");
    assert_eq!(output, "['lo', 'path']\n", "{trial}");
}

fn ip(testbed: &SiteTestbed, host: &str) -> String {
    let address = testbed.address(host);
    address.rsplit_once(':').unwrap().0.to_owned()
}

const FILES: &str = r#"for path in "$SECRET" /proc/1/environ /dev/shm/trial /etc/shadow; do
  if cat "$path" > /dev/null 2>&1 || ls "$path" > /dev/null 2>&1; then echo "read $path"; fi
done
for name in $(ls /proc | grep '^[0-9]*$'); do
  if tr '\0' ' ' < /proc/$name/cmdline | grep -q 'lab agent'; then echo "saw the agent"; fi
done 2>/dev/null
kill -9 -1 2>/dev/null
(mkdir /folder/x && mount -t tmpfs x /folder/x) 2>/dev/null && echo mounted
unshare -Urn true 2>/dev/null && echo unshared
(echo 1 > /proc/sys/net/ipv4/ip_forward) 2>/dev/null && echo forwards
ip link add dummy0 type dummy 2>/dev/null && echo linked
ip addr add 10.9.9.9/32 dev path 2>/dev/null && echo addressed
echo done
"#;

pub(crate) fn attacked_files() {
    if !is_possible() {
        return;
    }
    let testbed = SiteTestbed::new();
    let secret = testbed.path("controller.key").display().to_string();
    let client = FILES.replace("$SECRET", &secret);
    let (trial, output) = performed(&testbed, LISTENING, &client);
    // `kill -9 -1` has no right to end the shell itself.
    assert_eq!(output.lines().last(), Some("done"), "{trial} {output}");
    let printed: Vec<&str> =
        output.lines().filter(|line| !line.contains("/proc/1/environ")).collect();
    assert_eq!(printed, ["done"], "{trial}");
}

/// A client that stays until there is an end of it.
const STAYING: &str = "trap '' TERM HUP INT\necho here > /tmp/mark\nsleep 1000 & sleep 1000\n";

pub(crate) fn killed_agent() {
    if !is_possible() {
        return;
    }
    let mut testbed = SiteTestbed::new();
    let pair = testbed.path("pair");
    fs::create_dir(&pair).unwrap();
    fs::write(pair.join("web-server.sh"), LISTENING).unwrap();
    fs::write(pair.join("web-client.sh"), STAYING).unwrap();
    let before = leftovers(&testbed);
    let mut run = testbed.run("pair", PAIR, &["--reconnect", "1", EMULATE]);
    until("the client runs", || has_process("sleep\x001000"));
    // SIGKILL of the agent, and of the run.
    testbed.fra = None;
    until("nothing is left of the client", || !has_process("sleep\x001000"));
    run.kill().unwrap();
    run.wait().unwrap();
    until("the other agent is free", || testbed.text("syd.log").contains("does not control"));
    until("nothing is left", || leftovers(&testbed) == before);
    // The next agent begins as if there had been none before.
    testbed.fra = Some(testbed.agent("fra"));
    let client = "curl --silent --fail \"http://$1/page\"\n";
    let (trial, _) = performed(&testbed, LISTENING, client);
    assert_eq!(trial["texts"]["result"], "ok", "{trial}");
    until("nothing is left", || leftovers(&testbed) == before);
    // Where control groups can be made, those of the killed agent are removed by the next script.
    until("no control group is left", || !has_stale_group(Path::new("/sys/fs/cgroup")));
}

/// Whether there is a control group of a contained script that nobody uses.
fn has_stale_group(directory: &Path) -> bool {
    fs::read_dir(directory).into_iter().flatten().flatten().any(|entry| {
        if !entry.file_type().is_ok_and(|it| it.is_dir()) {
            return false;
        }
        if !entry.file_name().to_string_lossy().starts_with("sunder-contained-") {
            return has_stale_group(&entry.path());
        }
        let is_used = File::open(entry.path()).is_ok_and(|group| group.try_lock().is_err());
        !is_used && entry.path().exists()
    })
}

/// What a trial could leave on machines: interfaces and ports of links.
fn leftovers(testbed: &SiteTestbed) -> Vec<String> {
    let mut left = Vec::new();
    for site in ["fra", "syd"] {
        left.extend(testbed.interfaces(site));
        let sockets = testbed.at_site(site, || fs::read_to_string("/proc/thread-self/net/udp"));
        left.push(format!("{} links", sockets.unwrap().matches(":1BBD ").count()));
    }
    left
}

/// Whether a process with this command runs anywhere here.
fn has_process(command: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    commands.any(|it| String::from_utf8_lossy(&it).contains(command))
}
