//! `sunder transport` between emulated hosts: a long path, one that fails, reorders or doubles, a
//! full disk, peers that stop or disappear, strangers.
//! Without user namespaces and `/dev/net/tun`, prints that the tests were skipped.
//!
//! `cargo test --package sunder-cli --test transport_paths -- --ignored` also lets a path die for
//! longer than an end waits, compares `auto` with TCP and a forward with its transport, and tries
//! all transports over paths of all MTUs, which takes minutes.

mod auto;
mod breaks;
mod channels;
#[path = "../emulation/mod.rs"]
mod emulation;
mod faults;
mod forward;
#[path = "../emulation/interruption.rs"]
mod interruption;
mod mtu;
mod nat;
mod relay;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use emulation::{Process, network, until};
use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection, sandbox};
use libtest_mimic::{Arguments, Trial as Test};

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let test = |name: &str, run: fn()| {
        Test::test(name, move || {
            run();
            Ok(())
        })
    };
    let tests = vec![
        test("a_file_crosses_a_path_of_300_ms_by_every_transport", long_path),
        test("a_file_crosses_three_links_by_micss", channels::file),
        test("a_channel_of_micss_that_dies_is_an_error_in_time", channels::channel_that_dies),
        test("a_transfer_waits_while_its_path_fails", short_failure),
        test("a_path_that_loses_long_packets_is_used_by_all", mtu::some_mtus),
        test("a_hole_that_opens_in_mid_transfer_is_passed", mtu::hole),
        test("a_stopped_sender_goes_on_when_it_is_started_again", breaks::stopped_sender),
        test("a_sender_goes_on_when_its_receiver_is_started_again", breaks::stopped_receiver),
        test("a_full_disk_is_named_and_the_transfer_goes_on_later", full_disk),
        test("a_full_disk_leaves_the_older_version_of_a_changed_file", full_disk_with_older),
        test("a_peer_that_does_not_read_is_an_error_in_time", faults::peer_that_does_not_read),
        test("udp_is_refused_where_datagrams_are_lost", faults::udp_where_datagrams_are_lost),
        test("a_path_that_dies_is_an_error_in_time", faults::path_that_dies),
        test("a_client_may_change_its_address", faults::changed_address),
        test("a_peer_that_disappears_is_an_error_in_time", faults::peer_that_disappears),
        test(
            "streams_are_exact_on_a_path_that_reorders_and_doubles",
            faults::reordered_and_doubled,
        ),
        test("a_million_datagrams_of_strangers_change_nothing", faults::million_datagrams),
        test("a_relay_connects_nobody_to_a_receiver_that_is_gone", relay::waiting_that_is_over),
        test("two_hosts_behind_nats_get_the_best_path", nat::paths),
        test("burst_between_nats_without_udp_is_an_error", nat::required_datagrams),
        test("the_paths_between_nats_are_compared", nat::compared).with_ignored_flag(true),
        test("programs_use_a_forward_over_a_path_of_110_ms", forward::programs),
        test("postgresql_is_used_through_a_forward", forward::postgresql),
        test("mp_spdz_computes_through_a_forward", forward::mp_spdz),
        test("forwarded_streams_are_exact_and_half_closed", forward::exact_streams),
        test("many_connections_are_forwarded_at_once", forward::many_connections),
        test("short_connections_do_not_wait_for_a_handshake", forward::short_connections),
        test("a_forward_waits_for_a_program_that_does_not_read", forward::slow_reader),
        test("a_forward_without_its_service_says_why", forward::target_down),
        test("a_forward_by_tcp_over_a_path_that_breaks_is_reset", forward::broken_path_by_tcp),
        test("a_forward_by_burst_over_a_path_that_breaks_is_reset", forward::broken_path_by_burst),
        test("a_forward_by_quic_over_a_path_that_breaks_is_reset", forward::broken_path_by_quic),
        test("a_stopped_forward_lets_connections_finish", forward::stop),
        test("an_idle_forward_stays_open", forward::idle).with_ignored_flag(true),
        test("a_forward_is_compared_with_its_transport", forward::compared).with_ignored_flag(true),
        test("auto_goes_on_by_tcp_where_udp_is_blocked", auto::blocked),
        test("auto_goes_on_by_tcp_where_udp_is_throttled", auto::policed),
        test("auto_uses_udp_again_after_an_outage", auto::outage),
        test("auto_is_compared_with_tcp", auto::compared).with_ignored_flag(true),
        test("paths_of_all_mtus_are_used_by_all", mtu::all_mtus).with_ignored_flag(true),
        test("a_path_that_was_dead_for_long_is_used_again", long_failure).with_ignored_flag(true),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Two hosts with a link, and a receiver on one of them.
struct Pair {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
    receiver: Process,
    /// Of the receiver.
    address: String,
    /// What follows `sunder transport send FILE`.
    options: Vec<String>,
}

impl Pair {
    /// `conditions` are those of the link, both ways.
    fn new(conditions: &str) -> Self {
        Self::over(conditions, 1500, false)
    }

    /// `mtu` is that of the hosts' devices.
    fn over(conditions: &str, mtu: u32, is_ipv6: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = format!(
            "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
             [hosts]\nsender.ipv6 = {is_ipv6}\nreceiver.ipv6 = {is_ipv6}\n\
             [links.a]\nhosts = [\"sender\", \"receiver\"]\nmtu = {mtu}\n\
             both = {{ {conditions} }}\n"
        );
        let network = network(&topology, directory.path());
        fs::create_dir(directory.path().join("out")).unwrap();
        let address = network.address("receiver", "a").unwrap();
        let address = if is_ipv6 {
            format!("[{}]", Ipv6Addr::from((0xfd00 << 112) | u128::from(address.to_bits())))
        } else {
            address.to_string()
        };
        let (receiver, options) = start(&network, &directory, &address, &[]);
        Self { network, directory, receiver, address, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn received(&self, name: &str) -> u64 {
        fs::metadata(self.path("out").join(name)).map_or(0, |file| file.len())
    }

    /// Starts to send a file with this content.
    fn send(&self, name: &str, data: &[u8], more: &[&str]) -> Child {
        fs::write(self.path(name), data).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["transport", "send", name, "--json"]).args(&self.options).args(more);
        command.current_dir(self.directory.path());
        // What is remembered of a path is not that of the user who runs the tests.
        command.env("XDG_STATE_HOME", self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let host = self.network.host("sender").unwrap();
        host.run(|| command.spawn()).unwrap().unwrap()
    }

    /// Waits until more than this much of a file has arrived, and is still a part. Returns false if
    /// the command has ended: on a busy machine, all can have arrived before this was seen.
    fn is_under_way(&self, sending: &mut Child, name: &str, bytes: u64) -> bool {
        let part = format!(".{name}.part");
        let mut is_over = false;
        until("a part has arrived", || {
            let has_part = self.received(&part) > bytes;
            is_over = sending.try_wait().unwrap().is_some();
            has_part || is_over
        });
        !is_over
    }

    /// The error of an attempt in which a file had arrived before it was interrupted. If it was
    /// sent by a transport that was named, the file has the same name.
    fn was_too_late(&self, sending: Child, name: &str, data: &[u8]) -> Result<(), String> {
        sent_by(name, &sending.wait_with_output().unwrap())?;
        self.take(name, data);
        Err("all had arrived before it was interrupted".into())
    }

    /// Checks that a file has arrived unchanged, and removes it.
    fn take(&self, name: &str, data: &[u8]) {
        let arrived = self.path("out").join(name);
        assert!(fs::read(&arrived).unwrap() == data, "{name}");
        fs::remove_file(arrived).unwrap();
    }

    /// Forgets what is known of the path.
    fn forget(&self) {
        let _ = fs::remove_dir_all(self.path("sunder"));
    }

    /// Loses everything, or nothing more than before.
    fn cut(&self, is_cut: bool, conditions: &EmulatedLinkConditions) {
        let loss = if is_cut { 1.0 } else { conditions.loss };
        for direction in [LinkDirection::Forward, LinkDirection::Back] {
            let changed = EmulatedLinkConditions { loss, ..*conditions };
            self.network.link("a").unwrap().set(direction, changed).unwrap();
        }
    }
}

fn start(
    network: &EmulatedNetwork,
    directory: &tempfile::TempDir,
    address: &str,
    more: &[&str],
) -> (Process, Vec<String>) {
    let host = network.host("receiver").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "receive", "--out", "out", "--listen", &format!("{address}:7000")]);
    // The same key again when it is started again.
    let key = directory.path().join("receive.key");
    fs::write(&key, "07".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    command.args(["--identity", "receive.key"]).args(more);
    command.current_dir(directory.path());
    let log = directory.path().join("receiver.log");
    let receiver = Process::start(host, &mut command, &log);
    let printed = || fs::read_to_string(&log).unwrap();
    until("the receiver listens", || printed().contains("--key "));
    let printed = printed();
    let send = printed.lines().find_map(|line| line.strip_prefix("sunder transport send FILE "));
    (receiver, send.unwrap().split(' ').map(str::to_owned).collect())
}

fn succeeded(output: &Output) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command has printed that has sent by this transport. An error where the emulator has
/// lost packets because the machine is busy, so that `udp` does not connect.
fn sent_by(transport: &str, output: &Output) -> Result<serde_json::Value, String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let has_lost = transport == "udp" && stderr.contains("the path loses");
    if has_lost && output.status.code() != Some(0) {
        return Err(stderr.into_owned());
    }
    Ok(succeeded(output))
}

/// Tries something up to three times, because a busy machine may delay an attempt. An error says
/// what was late. What no busy machine does is an assertion within the attempt.
fn try_thrice(what: &str, attempt: impl FnMut() -> Result<(), String>) {
    try_often(3, what, attempt);
}

/// See [`try_thrice`].
fn try_often(times: usize, what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut late = Vec::new();
    for _ in 0..times {
        match attempt() {
            Ok(()) => return,
            Err(why) => {
                println!("{what}: {why}");
                late.push(why);
            }
        }
    }
    panic!("{what}, {times} times: {late:#?}");
}

/// An error, unless it took less than this.
fn in_time(took: Duration, limit: Duration) -> Result<(), String> {
    let is_in_time = took < limit;
    is_in_time.then_some(()).ok_or_else(|| format!("it took {took:.1?}, not {limit:?}"))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7).to_le_bytes()[0]).collect()
}

fn long_path() {
    let pair = Pair::new("rate_mbit = 200, delay_ms = 150");
    let data = pattern(4_000_000);
    // On a busy machine udp measures a rate that the link does not have.
    for (name, _) in transport::names().filter(|(name, _)| !["micss", "udp"].contains(name)) {
        try_thrice(name, || {
            let start = Instant::now();
            let sending = pair.send(name, &data, &["--transport", name]);
            let sent = succeeded(&sending.wait_with_output().unwrap());
            let took = start.elapsed();
            pair.take(name, &data);
            // It may have fallen back.
            println!("{name}: {sent}");
            in_time(took, Duration::from_secs(15))
        });
    }
}

fn short_failure() {
    // A busy machine fills this path, too.
    let pair = Pair::new("rate_mbit = 20, delay_ms = 10, queue_ms = 200");
    let conditions = pair.network.conditions("a", LinkDirection::Forward).unwrap();
    let data = pattern(4_000_000);
    // The sender connects again after 2.5 s: a busy machine makes the failure longer, or adds one.
    try_thrice("a failure of a second", || {
        pair.forget();
        let mut sending = pair.send("a", &data, &[]);
        let is_under_way = pair.is_under_way(&mut sending, "a", 1_000_000);
        pair.cut(true, &conditions);
        let stopped = Instant::now();
        until("a second has passed", || stopped.elapsed() >= Duration::from_secs(1));
        let was_cut = is_under_way && sending.try_wait().unwrap().is_none();
        pair.cut(false, &conditions);
        let output = sending.wait_with_output().unwrap();
        let sent = succeeded(&output);
        pair.take("a", &data);
        let is_unbroken = was_cut && sent["connections"] == 1;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why = || format!("cut in the middle: {was_cut}, {sent}, {stderr}");
        is_unbroken.then_some(()).ok_or_else(why)
    });
}

fn long_failure() {
    let pair = Pair::new("rate_mbit = 50, delay_ms = 10");
    let conditions = pair.network.conditions("a", LinkDirection::Forward).unwrap();
    let data = pattern(8_000_000);
    let mut sending = pair.send("a", &data, &[]);
    until("a part has arrived", || pair.received(".a.part") > 1_000_000);
    pair.cut(true, &conditions);
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(35) {
        assert!(sending.try_wait().unwrap().is_none(), "it gave up");
        std::thread::yield_now();
    }
    pair.cut(false, &conditions);
    let sent = succeeded(&sending.wait_with_output().unwrap());
    println!("{sent}");
    assert!(sent["connections"].as_u64().unwrap() >= 2);
    assert!(fs::read(pair.path("out/a")).unwrap() == data);
}

/// Writes to a file until the disk is full.
fn fill(path: &Path) {
    let (mut file, block) = (File::create(path).unwrap(), vec![1; 1 << 16]);
    let error = loop {
        if let Err(error) = file.write_all(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
}

/// Sends the file `a`, and fills the disk by the file `other` when more than this much has arrived.
/// Returns what the sender says, or nothing if all had arrived before the disk was full.
fn fill_during(pair: &Pair, data: &[u8], bytes: u64) -> Option<String> {
    let mut sending = pair.send("a", data, &[]);
    let is_under_way = pair.is_under_way(&mut sending, "a", bytes);
    fill(&pair.path("out/other"));
    let output = sending.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    if is_under_way && output.status.code() == Some(1) {
        return Some(stderr);
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    fs::remove_file(pair.path("out/other")).unwrap();
    pair.take("a", data);
    None
}

fn full_disk_with_older() {
    let mut pair = Pair::new("rate_mbit = 4, delay_ms = 10");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=10m", "tmpfs"]).arg(pair.path("out"));
    assert!(mount.status().unwrap().success());
    pair.receiver.0.kill().unwrap();
    pair.receiver.0.wait().unwrap();
    (pair.receiver, _) = start(&pair.network, &pair.directory, &pair.address, &["--overwrite"]);
    // Half of it is changed.
    let older = noise(1, 4_000_000);
    let newer = [&older[..2_000_000], &noise(2, 2_000_000)].concat();
    let stderr = (0..3).find_map(|_| {
        fs::write(pair.path("out/a"), &older).unwrap();
        fill_during(&pair, &newer, 2_100_000)
    });
    let stderr = stderr.expect("the disk is full before all has arrived");
    assert!(stderr.contains("the receiver says: cannot write a: the disk is full"), "{stderr}");
    assert!(fs::read(pair.path("out/a")).unwrap() == older);
    fs::remove_file(pair.path("out/other")).unwrap();
    let sent = succeeded(&pair.send("a", &newer, &[]).wait_with_output().unwrap());
    assert!(sent["resumed_from"].as_u64().unwrap() > 2_000_000, "{sent}");
    assert!(fs::read(pair.path("out/a")).unwrap() == newer);
    assert!(Command::new("umount").arg(pair.path("out")).status().unwrap().success());
}

/// Bytes of which no part is repeated.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = sim::SeededRng::new(seed);
    (0..len).map(|_| random.next_u64().to_le_bytes()[0]).collect()
}

fn full_disk() {
    let pair = Pair::new("rate_mbit = 20, delay_ms = 10");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=10m", "tmpfs"]).arg(pair.path("out"));
    assert!(mount.status().unwrap().success());
    // The receiver has the directory by its name.
    let output = pair.send("large", &pattern(12_000_000), &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("the disk has no room: the file needs 12000000 bytes more"),
        "{stderr}"
    );
    // Somebody else fills it.
    let data = pattern(8_000_000);
    let stderr = (0..3).find_map(|_| fill_during(&pair, &data, 1_000_000));
    let stderr = stderr.expect("the disk is full before all has arrived");
    assert!(stderr.contains("the receiver says: cannot write a: the disk is full"), "{stderr}");
    // Beside what a busy machine adds.
    let is_late = |line: &str| {
        line.contains("nothing has arrived from the receiver over")
            || line.contains(": continuing by tcp")
    };
    assert_eq!(stderr.lines().filter(|line| !is_late(line)).count(), 1, "{stderr}");
    fs::remove_file(pair.path("out/other")).unwrap();
    let sent = succeeded(&pair.send("a", &data, &[]).wait_with_output().unwrap());
    assert!(sent["resumed_from"].as_u64().unwrap() > 1_000_000, "{sent}");
    assert!(fs::read(pair.path("out/a")).unwrap() == data);
    assert!(Command::new("umount").arg(pair.path("out")).status().unwrap().success());
}
