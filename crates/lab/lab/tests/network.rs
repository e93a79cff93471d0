//! Emulated networks with real sockets. Without user namespaces and `/dev/net/tun`, prints that the
//! tests were skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial as Test};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sunder_lab::sandbox;
use sunder_lab::{
    EmulatedHost, EmulatedLinkConditions, EmulatedNetwork, LinkDirection, Trial, TrialContext,
    TrialMeasurement, perform,
};

/// Lists the tests with the names of their functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$(Test::test(stringify!($name), || { $name(); Ok(()) })),*]
    };
}

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let tests = tests![
        a_link_keeps_its_rate,
        a_fast_link_keeps_its_rate_with_superpackets,
        a_link_keeps_its_delay_and_loss,
        streams_survive_impairments_of_superpackets,
        the_same_seed_loses_the_same_packets,
        conditions_change_while_packets_flow,
        hosts_see_only_their_links,
        hosts_with_ipv6_send_no_packets_of_their_own,
        hosts_reach_each_other_through_one_that_forwards,
        a_tap_records_the_packets_on_the_link,
        programs_start_in_order_and_end_with_the_trial,
        a_failed_trial_reports_the_cause,
        nothing_outlives_its_trial,
        a_tap_is_a_new_file,
        a_full_disk_is_named,
        too_much_output_ends_a_trial,
        impossible_settings_are_reported,
        the_machines_parameters_cannot_be_changed,
    ];
    // One at a time, because they measure times.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// A trial with one link between `client` and `server`; `rest` is TOML that begins with the
/// measurement.
fn trial(conditions: &str, rest: &str) -> Trial {
    let text = format!(
        "hosts = {{ client = {{}}, server = {{}} }}\n\
         links.a = {{ hosts = [\"client\", \"server\"], both = {{ {conditions} }} }}\n{rest}"
    );
    toml::from_str(&text).unwrap()
}

fn network(conditions: &str, seed: u64) -> EmulatedNetwork {
    let trial = trial(conditions, "measure = { driver = \"accuracy\", values = {} }");
    EmulatedNetwork::new(&trial, TrialContext { seed, ..context(Path::new("/")) }).unwrap()
}

fn hosts(network: &EmulatedNetwork) -> [&EmulatedHost; 2] {
    ["client", "server"].map(|name| network.host(name).unwrap())
}

fn context(directory: &Path) -> TrialContext<'_> {
    TrialContext { seed: 1, files: directory, results: directory, number: 1 }
}

/// Runs a trial in temporary directories.
fn performed(trial: &Trial) -> Result<TrialMeasurement, String> {
    let directory = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    perform(trial, context(directory.path()), &|_| {}).map_err(|error| error.to_string())
}

fn accuracy(conditions: &str, options: &str, values: &str) -> TrialMeasurement {
    let rest = format!(
        "[measure]\ndriver = \"accuracy\"\noptions = {{ {options} }}\n[measure.values]\n{values}"
    );
    let trial = trial(conditions, &rest);
    // On a busy machine links are late, and the trial reports it. Such a trial does not count.
    let mut attempts = (0..5).map(|_| performed(&trial).unwrap());
    let mut last = attempts.next().unwrap();
    while last.is_late()
        && let Some(next) = attempts.next()
    {
        last = next;
    }
    last
}

fn assert_near(measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (measured - expected).abs() <= tolerance,
        "{measured} is not within {tolerance} of {expected}"
    );
}

/// Checks that a link carries its rate, within a part of it, in one of three attempts. A sender
/// that waits for a processor longer than the link's queue lasts leaves the link idle, and a
/// receiver that waits reads later than the packets arrive. The lateness of a trial includes
/// neither.
fn assert_keeps_rate(rate: f64, tolerance: f64) {
    let mut measured = Vec::new();
    for _ in 0..3 {
        let conditions = format!("rate_mbit = {rate}");
        let trial = accuracy(&conditions, "delays = 0, rate_s = 1.0", "carried = {}");
        let carried = trial.values["carried"];
        if (carried - rate).abs() <= tolerance * rate {
            return;
        }
        measured.push(carried);
    }
    panic!("three times not within {tolerance} of {rate} Mbit/s: {measured:?}");
}

fn a_link_keeps_its_rate() {
    for rate in [1.0, 20.0, 100.0] {
        assert_keeps_rate(rate, 0.01);
    }
}

fn a_fast_link_keeps_its_rate_with_superpackets() {
    assert_keeps_rate(1000.0, 0.02);
}

fn a_link_keeps_its_delay_and_loss() {
    let options = "delays = 300, losses = 20000";
    for burst in ["", ", burst = 4"] {
        // A limited rate, and queues for a thread that is late: what is lost is by chance only.
        let conditions =
            format!("rate_mbit = 6, queue_ms = 1000, delay_ms = 20, loss = 0.05{burst}");
        let mut measured = Vec::new();
        // No packet is early. On a busy machine the programs at the ends wait for a processor, so
        // one of three attempts counts. The experiment `links` measures the accuracy on an idle
        // one.
        let is_near = (0..3).any(|_| {
            let TrialMeasurement { values, .. } =
                accuracy(&conditions, options, "delay = {}\nloss_z = {}");
            let (delay, loss_z) = (values["delay"], values["loss_z"]);
            assert!(delay >= 22.4 - 2.6, "{delay} ms is early");
            measured.push((delay, loss_z));
            (delay - 22.4).abs() <= 2.6 && loss_z.abs() <= 4.0
        });
        assert!(is_near, "three times a wrong delay or loss: {measured:?}");
    }
}

/// Sends bytes from one host to the other and returns those that arrive.
fn transfer(network: &EmulatedNetwork, bytes: &[u8]) -> Vec<u8> {
    let [client, server] = hosts(network);
    let address = SocketAddr::new(network.address("server", "a").unwrap().into(), 7000);
    let listener = server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = client.run(|| TcpStream::connect(address)).unwrap().unwrap();
            stream.write_all(bytes).unwrap();
        });
        let mut arrived = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
        arrived
    })
}

fn streams_survive_impairments_of_superpackets() {
    let mut dice = fastrand::Rng::with_seed(1);
    let bytes: Vec<u8> = (0..8 << 20).map(|_| dice.u8(..)).collect();
    // Fast enough for superpackets to stay in large pieces.
    let conditions =
        "rate_mbit = 2000, delay_ms = 1, loss = 0.005, reorder = 0.01, duplicate = 0.01";
    let network = network(conditions, 1);
    assert!(transfer(&network, &bytes) == bytes, "the bytes have changed");
    let counts = network.link("a").unwrap().counts(LinkDirection::Forward);
    assert!(counts.lost > 0 && counts.reordered > 0 && counts.duplicated > 0, "{counts:?}");
}

fn the_same_seed_loses_the_same_packets() {
    let arrived = |seed| {
        let network = network("loss = 0.2, burst = 2", seed);
        let [client, server] = hosts(&network);
        let address = SocketAddr::new(network.address("server", "a").unwrap().into(), 7000);
        let receiver = server.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let sender = client.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
        for number in 0..200_u16 {
            sender.send_to(&number.to_le_bytes(), address).unwrap();
        }
        let (mut numbers, mut number) = (BTreeSet::new(), [0; 2]);
        let (link, begin) = (network.link("a").unwrap(), Instant::now());
        // Until the link accounts for all that are missing.
        loop {
            let (arrived, counts) = (numbers.len(), link.counts(LinkDirection::Forward));
            if arrived as u64 + counts.lost + counts.dropped >= 200 {
                break numbers;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{arrived} arrived, {counts:?}");
            if receiver.recv(&mut number).is_ok() {
                numbers.insert(u16::from_le_bytes(number));
            }
        }
    };
    let first = arrived(1);
    assert!((120..190).contains(&first.len()), "{} of 200 arrived", first.len());
    assert_eq!(first, arrived(1));
    assert_ne!(first, arrived(2));
}

fn conditions_change_while_packets_flow() {
    let network = network("delay_ms = 1", 1);
    let [client, server] = hosts(&network);
    let address = SocketAddr::new(network.address("server", "a").unwrap().into(), 7000);
    let listener = server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut one = client.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let mut other = listener.accept().unwrap().0;
    let mut round_trip = || {
        let start = Instant::now();
        one.write_all(&[1]).unwrap();
        other.read_exact(&mut [0]).unwrap();
        other.write_all(&[1]).unwrap();
        one.read_exact(&mut [0]).unwrap();
        start.elapsed()
    };
    // None is early. Up to three, because a busy machine may delay some.
    let mut assert_takes = |least: u64, limit: u64| {
        let times: Vec<Duration> = (0..3).map(|_| round_trip()).collect();
        assert!(times.iter().all(|time| *time >= Duration::from_millis(least)), "{times:?}");
        assert!(times.iter().any(|time| *time < Duration::from_millis(limit)), "{times:?}");
    };
    assert_takes(2, 30);
    let slow = EmulatedLinkConditions { delay_ms: 60.0, ..EmulatedLinkConditions::default() };
    network.link("a").unwrap().set(LinkDirection::Back, slow).unwrap();
    assert_takes(61, 90);
}

fn hosts_see_only_their_links() {
    let text = "hosts = { a = {}, b = {}, c = {} }\n\
                links.left = { hosts = [\"a\", \"b\"] }\n\
                links.right = { hosts = [\"b\", \"c\"] }\n\
                measure = { driver = \"accuracy\", values = {} }";
    let network =
        EmulatedNetwork::new(&toml::from_str(text).unwrap(), context(Path::new("/"))).unwrap();
    assert_eq!(network.address("b", "left"), Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(network.address("b", "right"), Some(Ipv4Addr::new(10, 0, 1, 1)));
    assert_eq!(network.address("a", "right"), None);
    let address = SocketAddr::new(network.address("b", "left").unwrap().into(), 7000);
    let _listener = network.host("b").unwrap().run(|| TcpListener::bind(address)).unwrap().unwrap();
    let connect =
        |host: &str| network.host(host).unwrap().run(|| TcpStream::connect(address)).unwrap();
    assert!(connect("a").is_ok());
    assert!(connect("c").is_err(), "c has no link to a's network");
}

fn hosts_with_ipv6_send_no_packets_of_their_own() {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        eprintln!("skipped: this kernel has no IPv6");
        return;
    }
    let text = "hosts = { client = { ipv6 = true }, server = { ipv6 = true } }\n\
                links.a = { hosts = [\"client\", \"server\"], both = { delay_ms = 1 } }\n\
                measure = { driver = \"accuracy\", values = {} }";
    let network =
        EmulatedNetwork::new(&toml::from_str(text).unwrap(), context(Path::new("/"))).unwrap();
    let [client, server] = hosts(&network);
    for address in ["[fd00::10.0.0.2]:7000", "10.0.0.2:7000"] {
        let receiver = server.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        let any = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let sender = client.run(|| UdpSocket::bind(any)).unwrap().unwrap();
        sender.send_to(b"here", address).unwrap();
        assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 4);
    }
    let offered = LinkDirection::BOTH.map(|way| network.link("a").unwrap().counts(way).offered);
    assert_eq!(offered, [2, 0]);
}

fn a_tap_records_the_packets_on_the_link() {
    let directory = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    let text = "hosts = { client = {}, server = {} }\n\
                measure = { driver = \"accuracy\", values = {} }\n\
                [links.a]\nhosts = [\"client\", \"server\"]\ntap = \"a.pcapng\"\n\
                both = { rate_mbit = 1000, loss = 0.01 }";
    let network =
        EmulatedNetwork::new(&toml::from_str(text).unwrap(), context(directory.path())).unwrap();
    let secret = b"the plans are in the third drawer. ".repeat(10_000);
    assert!(transfer(&network, &secret) == secret);
    let counts = network.link("a").unwrap().counts(LinkDirection::Forward);
    network.remove().unwrap();

    let file = directory.path().join("1-a.pcapng");
    let recorded = fs::read(&file).unwrap();
    let needle = b"the third drawer";
    assert!(
        recorded.windows(needle.len()).any(|window| window == needle),
        "an eavesdropper reads along"
    );
    // tcpdump confirms that every packet is complete and has valid checksums. It tries to drop
    // root's privileges, which is impossible here, so it starts as another user.
    let tcpdump = ["--user", "--map-user=1000", "tcpdump", "-n", "-vv", "-r"];
    let tcpdump = Command::new("unshare").args(tcpdump).arg(&file).output();
    let tcpdump = tcpdump.unwrap();
    let message = [tcpdump.stdout, tcpdump.stderr]
        .map(|message| String::from_utf8_lossy(&message).into_owned())
        .concat();
    assert!(
        message.contains("(correct)")
            && !message.contains("incorrect")
            && !message.contains("bad cksum"),
        "{message}"
    );
    let from_client =
        message.lines().filter(|line| line.trim_start().starts_with("10.0.0.1.")).count() as u64;
    assert!(from_client >= counts.offered, "lost packets were on the wire, too");
}

const TRIAL_OF_PROGRAMS: &str = "[[programs]]
host = \"server\"
run = [\"python3\", \"-c\", \"import socket, time; s = socket.create_server(('', 7001)); time.sleep(600)\"]
listens = 7001
[measure]
host = \"client\"
run = [\"python3\", \"-c\", \"import socket; socket.create_connection(('10.0.0.2', 7001)); print('took 12.5 ms')\"]
[measure.values]
time = { after = \"took\", scale = 2 }";

fn programs_start_in_order_and_end_with_the_trial() {
    let measured = performed(&trial("delay_ms = 1", TRIAL_OF_PROGRAMS)).unwrap();
    assert_near(measured.values["time"], 25.0, 1e-9);
    let running = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        fs::read_to_string(entry.path().join("cmdline")).ok().filter(|line| line.contains("7001"))
    });
    assert_eq!(running.count(), 0, "a program outlived its trial");
}

fn a_failed_trial_reports_the_cause() {
    let cases = [
        ("s = socket.create_server(('', 7001))", "exit('out of luck')", "out of luck"),
        ("took 12.5", "was 12.5", "time is not in the output"),
        ("('10.0.0.2', 7001)", "('10.0.0.2', 7003)", "Connection refused"),
        (
            "\"python3\", \"-c\", \"import socket;",
            "\"no-such-program\", \"",
            "cannot start no-such-program",
        ),
    ];
    // The kernel closes the connection only when the process ends.
    let ends = "import os; print('no more', flush=True); c = s.accept(); os._exit(1)";
    let waits = "create_connection(('10.0.0.2', 7001)).recv(1)";
    let dies = TRIAL_OF_PROGRAMS.replace("time.sleep(600)", ends);
    let dies = dies.replace("create_connection(('10.0.0.2', 7001))", waits);
    let error = performed(&trial("", &dies)).unwrap_err();
    assert!(error.contains("during the measurement: no more"), "{error}");
    for (from, to, message) in cases {
        let text = TRIAL_OF_PROGRAMS.replace(from, to);
        assert_ne!(text, TRIAL_OF_PROGRAMS);
        let error = performed(&trial("", &text)).unwrap_err();
        assert!(error.contains(message) && !error.contains('\n'), "{error}");
    }
}

fn nothing_outlives_its_trial() {
    // It leaves the process group of its program.
    let away =
        "import os, subprocess; subprocess.Popen(['sleep', '617'], start_new_session=True); ";
    let text =
        TRIAL_OF_PROGRAMS.replace("import socket, time;", &format!("{away}import socket, time;"));
    assert_ne!(text, TRIAL_OF_PROGRAMS);
    performed(&trial("", &text)).unwrap();
    let running = fs::read_dir("/proc").unwrap().flatten();
    let running = running.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    assert!(running.into_iter().all(|line| !line.contains("617")));
}

const TAPPED: &str = "hosts = { client = {}, server = {} }
measure = { driver = \"accuracy\", options = { delays = 100 }, values = { delay = {} } }
[links.a]
hosts = [\"client\", \"server\"]
tap = \"a.pcapng\"";

fn a_tap_is_a_new_file() {
    let directory = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    let [other, tap] = ["other", "1-a.pcapng"].map(|name| directory.path().join(name));
    fs::write(&other, "not to be touched").unwrap();
    symlink(&other, &tap).unwrap();
    perform(&toml::from_str(TAPPED).unwrap(), context(directory.path()), &|_| {}).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "not to be touched");
    assert!(tap.symlink_metadata().unwrap().is_file());
}

fn a_full_disk_is_named() {
    let directory = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    mount("small", directory.path(), "tmpfs", MountFlags::empty(), Some(c"size=8k")).unwrap();
    let error =
        perform(&toml::from_str(TAPPED).unwrap(), context(directory.path()), &|_| {}).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("cannot write /dev/shm/") && message.contains("1-a.pcapng"),
        "{message}"
    );
    assert!(
        message.contains("No space left on device") && message.contains("make room"),
        "{message}"
    );
    unmount(directory.path(), UnmountFlags::empty()).unwrap();
}

fn too_much_output_ends_a_trial() {
    let measured =
        |run: &str| format!("[measure]\nhost = \"client\"\ntimeout_s = 30\nrun = [{run}]\n");
    let values = "[measure.values]\nx = { after = \"x\" }";
    let with = |key: &str| {
        let program = "[[programs]]\nhost = \"server\"\nrun = [\"yes\"]\n";
        format!("{program}{key}\n{}{values}", measured("\"sleep\", \"30\""))
    };
    let floods = [
        format!("{}{values}", measured("\"sh\", \"-c\", \"yes\"")),
        format!("{}{values}", measured("\"sh\", \"-c\", \"yes >&2\"")),
        with("says = \"never\""),
        with("listens = 7009"),
    ];
    for text in floods {
        // Up to three times, because a busy machine may delay some.
        let mut times = Vec::new();
        let is_soon = (0..3).any(|_| {
            let start = Instant::now();
            let error = performed(&trial("", &text)).unwrap_err();
            assert!(error.ends_with("printed more than 64 MiB"), "{error}");
            times.push(start.elapsed());
            start.elapsed() < Duration::from_secs(10)
        });
        assert!(is_soon, "three times it took {times:?}");
    }
}

fn impossible_settings_are_reported() {
    let failure = |text: &str| {
        EmulatedNetwork::new(&toml::from_str(text).unwrap(), context(Path::new("/")))
            .unwrap_err()
            .to_string()
    };
    let text = TAPPED.replace("tap = \"a.pcapng\"", "congestion = \"nope\"");
    let message = failure(&text);
    assert!(message.contains("link a: there is no congestion control nope"), "{message}");
    assert!(message.contains("tcp_available_congestion_control has"), "{message}");
    let text = TAPPED.replace("server = {}", "server = { sysctl.\"net/ipv4/nope\" = \"1\" }");
    let message = failure(&text);
    assert!(message.contains("host server: a host has no sysctl net/ipv4/nope"), "{message}");
}

const STAR: &str = "hosts = { a = {}, b = {}, c = {}, hub = { forwards = true } }
measure = { driver = \"accuracy\", values = {} }
links.a = { hosts = [\"a\", \"hub\"], both = { delay_ms = 5 } }
links.b = { hosts = [\"hub\", \"b\"], both = { delay_ms = 5 } }
links.c = { hosts = [\"c\", \"hub\"], both = { delay_ms = 5 } }";

fn hosts_reach_each_other_through_one_that_forwards() {
    let network =
        EmulatedNetwork::new(&toml::from_str(STAR).unwrap(), context(Path::new("/"))).unwrap();
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let [from, server] = [from, to].map(|name| network.host(name).unwrap());
        let address = network.address(to, to).unwrap();
        let listener = server.run(|| TcpListener::bind((address, 7001))).unwrap().unwrap();
        // It is open once a packet has gone there and back, over two links.
        let start = Instant::now();
        from.run(|| TcpStream::connect((address, 7001))).unwrap().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
        drop(listener);
    }
}

fn the_machines_parameters_cannot_be_changed() {
    let swappiness = "/proc/sys/vm/swappiness";
    let as_it_is = fs::read_to_string(swappiness).unwrap();
    assert!(fs::write(swappiness, as_it_is).is_err());
    // The host's own parameters can be changed.
    let network = network("", 1);
    let [client, server] = hosts(&network);
    let key = "net/ipv4/tcp_syn_retries";
    client.set(key, "3").unwrap();
    let value =
        |host: &EmulatedHost| host.run(|| fs::read_to_string(format!("/proc/sys/{key}"))).unwrap();
    assert_eq!(value(client).unwrap(), "3\n");
    assert_ne!(value(server).unwrap(), "3\n");
}
