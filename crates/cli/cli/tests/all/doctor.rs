//! `sunder doctor`: every mistake in a configuration, and what this host and the other end say to
//! it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Runs `sunder doctor` on a file, in whose directory status sockets are.
fn doctor(config: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["doctor", "--config"]).arg(config).args(arguments).stdin(Stdio::null());
    // It finds only daemons that a test has started.
    command.env("RUNTIME_DIRECTORY", config.parent().unwrap()).output().unwrap()
}

/// What it finds, as a document.
fn report(config: &Path) -> Value {
    let output = doctor(config, &["--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The findings about something.
fn about<'a>(report: &'a Value, subject: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().filter(|finding| finding["subject"] == subject).collect()
}

/// A file of this name with this text, in a directory that is gone with it.
fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

#[test]
fn five_mistakes_are_named_with_their_lines() {
    let text = "# The office.\nsock = \"127.0.0.1:1080\"\nthreshold = 5\nmax_streams = \"many\"\n\n\
                [[channel]]\nserver = \"192.0.2.10\"\n\n[[channel]]\nserver = \"198.51.100.10:7000\"\n\
                rng = \"os\"\n";
    let (_directory, path) = file("office.toml", text);
    let output = doctor(&path, &[]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = stdout.lines().collect();
    let expected = [
        ("error    line 2, sock: unknown key `sock`", "write `socks`"),
        ("error    line 3, threshold: threshold = 5", "give 1 to the number of channels"),
        ("error    line 4, max_streams: invalid type: string \"many\"", "max_streams = 4096"),
        ("error    line 7, channel 1, server: \"192.0.2.10\"", "write HOST:PORT"),
        ("error    line 11, channel 2, rng: unknown key `rng`", "put it above the first [[...]]"),
        ("note     configuration: ", "run this again"),
    ];
    assert_eq!(lines.len(), 2 * expected.len(), "{stdout}");
    for (lines, (what, fix)) in lines.chunks(2).zip(expected) {
        assert!(lines[0].starts_with(what), "{what}: {stdout}");
        assert!(
            lines[1].starts_with("         fix: ") && lines[1].contains(fix),
            "{fix}: {stdout}"
        );
    }
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "error: 5 errors were found; the fix of each is shown below it\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_examples_are_recognised_and_have_no_mistakes() {
    for (kind, text) in [
        ("proxy", include_str!("../../src/commands/proxy.toml")),
        ("serve", include_str!("../../src/commands/serve.toml")),
        ("tunnel", include_str!("../../src/commands/tunnel.toml")),
        ("tunnel", include_str!("../../src/commands/tunnel-server.toml")),
    ] {
        let (_directory, path) = file("example.toml", text);
        let report = report(&path);
        assert_eq!(report["for"], kind, "{report:#}");
        let [text] = about(&report, "configuration")[..] else { panic!("{report:#}") };
        assert_eq!((&text["level"], &text["fix"]), (&"ok".into(), &Value::Null));
        for finding in report["findings"].as_array().unwrap() {
            assert!(!finding["subject"].as_str().unwrap().starts_with("line "), "{finding}");
            let needs_fix = finding["level"] != "ok";
            assert_eq!(finding["fix"].is_string(), needs_fix, "{finding}");
        }
    }
}

#[test]
fn the_host_is_looked_at_without_a_configuration() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    let output = command.args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["for"], Value::Null);
    for subject in [
        "network devices",
        "/dev/net/tun",
        "low ports",
        "interception",
        "open files",
        "random source",
        "processor",
        "containment",
        "uplinks",
        "status directory",
    ] {
        assert_eq!(about(&report, subject).len(), 1, "{subject}: {report:#}");
    }
}

#[test]
fn what_is_no_configuration_is_reported() {
    let nowhere = doctor(Path::new("/no/such/file"), &[]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("no such file: /no/such/file"));
    let (_directory, path) = file("x.toml", "colour = \"red\"\n");
    let report = report(&path);
    assert_eq!(report["for"], Value::Null);
    assert!(about(&report, "configuration")[0]["fix"].as_str().unwrap().contains("--help"));
    assert_eq!(doctor(&path, &[]).status.code(), Some(1));
}

/// A daemon, killed when dropped.
struct RunningDaemon(Child);

impl RunningDaemon {
    /// Starts `sunder COMMAND` with its status socket in the directory of its configuration.
    /// Returns the first address on which it listens, too.
    fn start(kind: &str, config: &Path) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg(kind).arg("--config").arg(config).stdin(Stdio::null());
        command.env("RUNTIME_DIRECTORY", config.parent().unwrap());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let daemon = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").expect("an address");
        (daemon, address.split(": ").next().unwrap().to_owned())
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_are_distinguished_from_others() {
    // Another program that listens there sends something else first.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let strange = stranger.local_addr().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"220 mail ready\r\n");
        }
    });
    let text = |address: &str| format!("listen = [\"{address}\"]\nallow = [\"127.0.0.1:1\"]\n");
    let (_directory, serve) = file("serve.toml", &text("127.0.0.1:0"));
    let (_server, address) = RunningDaemon::start("serve", &serve);

    let servers = [address.clone(), nobody.to_string(), strange.to_string()];
    let channels = servers.map(|server| format!("[[channel]]\nserver = \"{server}\"\n")).concat();
    let (_directory, proxy) = file("proxy.toml", &format!("socks = \"127.0.0.1:0\"\n{channels}"));
    let found = report(&proxy);
    for (number, level, message) in [
        (1, "ok", "answers after"),
        (2, "error", "refuses the connection"),
        (3, "error", "is not sunder serve"),
    ] {
        let [channel] = about(&found, &format!("channel {number}"))[..] else {
            panic!("{found:#}")
        };
        assert_eq!(channel["level"], level, "{channel}");
        assert!(channel["message"].as_str().unwrap().contains(message), "{channel}");
    }
    // The server's own address is in use, and rightly so.
    std::fs::write(&serve, text(&address)).unwrap();
    assert_finding(&serve, "listen 1", "ok", "by this serve, which is running");
    // Without its status, its greeting shows that.
    let (_elsewhere, copy) = file("serve.toml", &text(&address));
    assert_finding(&copy, "listen 1", "ok", "a running sunder serve");
    std::fs::write(&serve, text(&strange.to_string())).unwrap();
    assert_finding(&serve, "listen 1", "error", "by another program: this serve is running");
}

/// Asserts that there is one finding about something, and how it is.
fn assert_finding(config: &Path, subject: &str, level: &str, message: &str) {
    let report = report(config);
    let [finding] = about(&report, subject)[..] else { panic!("{report:#}") };
    assert_eq!(finding["level"], level, "{finding}");
    assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
}

#[test]
fn address_of_the_running_proxy_is_distinguished_from_that_of_another_program() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = |socks: &str| {
        let channel = format!("[[channel]]\nserver = \"{nobody}\"\n");
        format!("socks = \"{socks}\"\nthreshold = 1\n{channel}{channel}")
    };
    let (_directory, config) = file("proxy.toml", &text("127.0.0.1:0"));
    let (proxy, address) = RunningDaemon::start("proxy", &config);
    std::fs::write(&config, text(&address)).unwrap();
    assert_finding(&config, "socks", "ok", "by this proxy, which is running");
    // A configuration of another name is that of another proxy, or a copy.
    let other = config.with_file_name("other.toml");
    std::fs::write(&other, text(&address)).unwrap();
    assert_finding(&other, "socks", "warning", "by this proxy, if it is running");
    let taken = stranger.local_addr().unwrap().to_string();
    std::fs::write(&config, text(&taken)).unwrap();
    assert_finding(&config, "socks", "error", "by another program: this proxy is running");
    drop(proxy);
    assert_finding(&config, "socks", "warning", "by this proxy, if it is running");
}

#[test]
fn no_program_of_the_directory_at_hand_is_run() {
    use std::os::unix::fs::PermissionsExt;
    let (place, path) = file("office.toml", include_str!("../../src/commands/proxy.toml"));
    for name in ["nft", "ip"] {
        let planted = place.path().join(name);
        let mark = place.path().join(format!("{name}-was-run"));
        std::fs::write(&planted, format!("#!/bin/sh\n: > {}\n", mark.display())).unwrap();
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for search in ["", ":", "."] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["doctor", "--config"]).arg(&path).current_dir(place.path());
        command.env("PATH", search).stdin(Stdio::null()).output().unwrap();
        for name in ["nft", "ip"] {
            let was_run = place.path().join(format!("{name}-was-run"));
            assert!(!was_run.exists(), "PATH={search:?}: ./{name} was run");
        }
    }
}
