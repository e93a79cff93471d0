//! Programs of others, unchanged.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{ForwardBed, LOCAL, LONG_PATH, SERVICE, TRANSPORTS, is_installed};
use crate::emulation::until;
use crate::{in_time, pattern, try_thrice};

/// `iperf3`, `redis-cli` and `rsync`, by each transport, and by the one that is chosen.
pub(crate) fn programs() {
    let mut bed = ForwardBed::new(LONG_PATH);
    for transport in TRANSPORTS.into_iter().chain(["auto"]) {
        bed.forward(transport);
        if is_installed("iperf3") {
            iperf3(&bed, transport);
        }
        if is_installed("redis-server") && is_installed("redis-cli") {
            redis(&bed, transport);
        }
        if is_installed("rsync") {
            rsync(&bed, transport);
        }
        let status = bed.status("forward");
        assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
    }
}

/// In both directions, with two streams each.
fn iperf3(bed: &ForwardBed, transport: &str) {
    let mut server = Command::new("iperf3");
    server.args(["--server", "--forceflush", "--port", &SERVICE.to_string()]);
    let server = bed.start("server", "iperf3", &mut server);
    // It says so before each test. It refuses one before the last one has ended at its side, too.
    let mut tests = 0;
    for direction in [&[][..], &["--reverse"]] {
        // On a busy machine, two seconds may be too short.
        let mut seconds = 2;
        try_thrice(&format!("{transport}: iperf3 {direction:?}"), || {
            tests += 1;
            until("iperf3 listens", || bed.log("iperf3").matches("listening").count() >= tests);
            let mut client = Command::new("iperf3");
            client.args(["--client", "127.0.0.1", "--port", &LOCAL.to_string(), "--json"]);
            client.args(["--parallel", "2", "--time", &seconds.to_string()]).args(direction);
            let report: serde_json::Value = serde_json::from_str(&bed.run(&mut client)).unwrap();
            let received = report["end"]["sum_received"]["bytes"].as_f64();
            println!("{transport}: iperf3 {direction:?} {received:?} bytes");
            seconds *= 2;
            received.filter(|it| *it > 2e6).map(drop).ok_or_else(|| report.to_string())
        });
    }
    drop(server);
}

fn redis(bed: &ForwardBed, transport: &str) {
    let mut server = Command::new("redis-server");
    server.args(["--port", &SERVICE.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    let server = bed.start("server", "redis", &mut server);
    bed.until_served();
    let client = || {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &LOCAL.to_string()]);
        client
    };
    let start = Instant::now();
    assert_eq!(bed.run(client().args(["SET", "city", "Halifax"])).trim(), "OK");
    assert_eq!(bed.run(client().args(["GET", "city"])).trim(), "Halifax");
    println!("{transport}: two commands of redis-cli, {:.2?}", start.elapsed());
    // Requests of which none waits for the answer of the one before.
    let commands: Vec<String> = (0..20_000).map(|i| format!("SET key{i} value{i}\r\n")).collect();
    fs::write(bed.directory.path().join("commands"), commands.concat()).unwrap();
    let script = format!("redis-cli -p {LOCAL} --pipe < commands");
    let printed = bed.run(Command::new("sh").args(["-c", &script]));
    assert!(printed.contains("errors: 0, replies: 20000"), "{printed}");
    drop(server);
}

fn rsync(bed: &ForwardBed, transport: &str) {
    let place = bed.directory.path().join(format!("rsync-{transport}"));
    fs::create_dir_all(place.join("there")).unwrap();
    fs::create_dir_all(place.join("here")).unwrap();
    for i in 0..20 {
        fs::write(place.join(format!("there/{i}")), &pattern(200_000)[i..]).unwrap();
    }
    // Its default user does not exist in a user namespace.
    let config = format!(
        "use chroot = no\nuid = 0\ngid = 0\n[files]\npath = {}\nread only = no\n",
        place.join("there").display()
    );
    fs::write(place.join("rsyncd.conf"), config).unwrap();
    let mut server = Command::new("rsync");
    server.args(["--daemon", "--no-detach", "--address", "127.0.0.1"]);
    server.args(["--port", &SERVICE.to_string(), "--config"]).arg(place.join("rsyncd.conf"));
    let server = bed.start("server", "rsync", &mut server);
    bed.until_served();
    let mut client = Command::new("rsync");
    client.args(["--archive", &format!("rsync://127.0.0.1:{LOCAL}/files/")]);
    bed.run(client.arg(place.join("here")));
    for i in 0..20 {
        assert!(fs::read(place.join(format!("here/{i}"))).unwrap() == pattern(200_000)[i..]);
    }
    drop(server);
}

/// `psql`, which waits for an answer to each request.
pub(crate) fn postgresql() {
    let Some(programs) = postgresql_programs() else {
        eprintln!("SKIPPED: PostgreSQL is not installed");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let as_user = |program: PathBuf| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    };
    // PostgreSQL does not run as root, and a user namespace has no other user.
    let owned = Command::new("chown").arg("postgres").arg(place.path()).status().unwrap();
    let mut init = as_user(programs.join("initdb"));
    init.args(["--auth=trust", "--no-sync", "--pgdata"]).arg(&data).current_dir("/");
    if !owned.success() || !init.output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: PostgreSQL cannot run as another user in this sandbox");
        return;
    }
    let mut bed = ForwardBed::new(LONG_PATH);
    let mut server = as_user(programs.join("postgres"));
    server.arg("-D").arg(&data).args(["-p", &SERVICE.to_string(), "-k", ""]);
    let _server = bed.start("server", "postgres", &mut server);
    bed.until_served();
    for transport in TRANSPORTS {
        bed.forward(transport);
        let local = LOCAL.to_string();
        try_thrice(&format!("{transport}: a query of psql"), || {
            let start = Instant::now();
            let query = "select count(*), sum(n) from generate_series(1, 100000) as n";
            let mut client = Command::new("psql");
            client.args(["-h", "127.0.0.1", "-p", &local, "-U", "postgres", "-Atc", query]);
            assert_eq!(bed.run(&mut client).trim(), "100000|5000050000");
            let took = start.elapsed();
            println!("{transport}: a query of psql, {took:.2?}");
            in_time(took, Duration::from_secs(10))
        });
        let query = "select n, repeat('x', 100) from generate_series(1, 20000) as n";
        let mut client = Command::new("psql");
        client.args(["-h", "127.0.0.1", "-p", &local, "-U", "postgres", "-Atc", query]);
        assert_eq!(bed.run(&mut client).lines().count(), 20_000);
    }
}

/// A program of MP-SPDZ. `MP_SPDZ` names the folder in which it was built.
pub(crate) fn mp_spdz() {
    let Some(built) = std::env::var_os("MP_SPDZ").map(PathBuf::from) else {
        eprintln!("SKIPPED: MP_SPDZ does not name a folder with MP-SPDZ and its semi-party.x");
        return;
    };
    let mut bed = ForwardBed::new(LONG_PATH);
    let file = |name: &str, text: &str| {
        let path = bed.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let sum = "sum = sint.get_input_from(0) + sint.get_input_from(1)\n\
               print_ln('the sum is %s', sum.reveal())\n";
    file("Programs/Source/sum.mpc", sum);
    file("Player-Data/Input-P0-0", "30\n");
    file("Player-Data/Input-P1-0", "12\n");
    // Party 1 connects to party 0, whose port is another one at its host.
    for (name, first) in [("hosts-0", SERVICE), ("hosts-1", LOCAL)] {
        file(name, &format!("127.0.0.1:{first}\n127.0.0.1:{}\n", SERVICE + 1));
    }
    bed.run(Command::new("python3").arg(built.join("compile.py")).arg("sum"));
    let party = |number: u8| {
        let hosts = format!("hosts-{number}");
        let mut party = Command::new(built.join("semi-party.x"));
        party.args(["-p", &number.to_string(), "-N", "2", "--ip-file-name", &hosts, "sum"]);
        party
    };
    for transport in TRANSPORTS {
        bed.forward(transport);
        let first = bed.start("server", "party-0", &mut party(0));
        bed.until_served();
        bed.run(&mut party(1));
        until("party 0 prints the sum", || bed.log("party-0").contains("the sum is 42"));
        drop(first);
    }
}

/// Where the server's programs are, which are not on the path.
fn postgresql_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    found.find(|programs| programs.join("initdb").exists())
}
