//! `sunder key`, `sunder init` and `sunder tunnel join`: keys and configurations of a new set-up.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::sunder;

/// What a command prints, without the end of the line.
fn printed(directory: &Path, arguments: &[&str]) -> String {
    let output = sunder(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Why a command refuses its arguments, in one line.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = sunder(directory, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The arguments of a printed command.
fn arguments_of(line: &str) -> Vec<&str> {
    let words = line.split(' ').skip(1).map(|word| word.trim_matches('\''));
    words.collect()
}

/// Whether only the owner can read a file.
fn is_private(path: &Path) -> bool {
    fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o600
}

/// The errors that `sunder doctor` finds in a configuration itself.
pub(crate) fn errors_in(config: &Path) -> Vec<String> {
    let directory = config.parent().unwrap();
    let output = sunder(directory, &["doctor", "--json", "--config", config.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    // The addresses are not those of this host.
    let errors = findings.filter(|it| it["level"] == "error").map(ToString::to_string);
    errors.filter(|it| !it.contains("192.0.2.") && !it.contains("there is no device")).collect()
}

#[test]
fn a_key_is_made_once_and_described_without_being_printed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(printed(path, &["key", "new", "a.key"]), "");
    let key = fs::read_to_string(path.join("a.key")).unwrap();
    assert!(is_private(&path.join("a.key")) && key.trim().len() == 64);
    assert!(refused(path, &["key", "new", "a.key"]).contains("exists, and is kept"));
    assert!(refused(path, &["key", "new", "none/a.key"]).contains("make it first"));
    let public = printed(path, &["key", "public", "a.key"]);
    let shown = printed(path, &["key", "show", "a.key"]);
    assert!(shown.contains(&public) && shown.contains("only its owner"), "{shown}");
    assert!(!shown.contains(key.trim()));
    // A copy with other white space is the same key, and another key is not.
    fs::write(path.join("b.key"), format!(" {}\n", key.trim())).unwrap();
    sunder(path, &["key", "new", "c.key"]);
    let fingerprint = |file: &str| {
        let json = printed(path, &["key", "show", "--json", file]);
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        (document["fingerprint"].clone(), document["exposure"].is_null())
    };
    let [(a, a_is_private), (b, b_is_private), (c, _)] =
        ["a.key", "b.key", "c.key"].map(fingerprint);
    assert!(a == b && a != c);
    assert!(a_is_private && !b_is_private);
    assert!(refused(path, &["key", "show", "none.key"]).contains("sunder key new none.key"));
}

#[test]
fn both_ends_of_a_tunnel_are_set_up_with_two_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let line = printed(
        path,
        &[
            "init",
            "tunnel",
            "--listen",
            "192.0.2.1:6521",
            "--listen",
            "192.0.2.2:6521",
            "--out",
            "server.toml",
        ],
    );
    let [server, client] = ["server", "client"].map(|end| path.join(format!("{end}.toml")));
    let join = [arguments_of(&line), vec!["--out", "client.toml"]].concat();
    let run = printed(path, &[&join[..], &["--device", "eth7", "--device", "eth8"]].concat());
    assert_eq!(run, "sunder tunnel --config client.toml");
    for config in [&server, &client] {
        assert!(errors_in(config).is_empty(), "{:?}", errors_in(config));
        assert!(is_private(config) && is_private(&config.with_extension("").join("tunnel.key")));
    }
    let fingerprints = ["server", "client"]
        .map(|end| printed(path, &["key", "show", &format!("{end}/tunnel.key")]));
    assert_eq!(fingerprints[0], fingerprints[1]);
    assert!(fs::read_to_string(&client).unwrap().contains("device = \"eth8\""));

    // Nothing is overwritten, and nothing is left of a command that was refused.
    assert!(refused(path, &join).contains("client.toml exists, and is kept"));
    let cut = &line[..line.len() - 60];
    let other = [arguments_of(cut), vec!["--out", "other.toml"]].concat();
    assert!(refused(path, &other).contains("copy it again"));
    let one = [arguments_of(&line), vec!["--device", "eth0", "--out", "other.toml"]].concat();
    assert!(refused(path, &one).contains("2 channels need --device for each"));
    assert!(!path.join("other.toml").exists() && !path.join("other").exists());
}

#[test]
fn a_server_of_a_quorum_is_set_up_by_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let init = ["init", "quorum", "--listen", "192.0.2.1:6530", "--out", "office.toml"];
    let line = printed(path, &init);
    let identity = printed(path, &["key", "public", "office/identity.key"]);
    assert_eq!(line, format!("{identity}@192.0.2.1:6530"));
    for file in ["office.toml", "office/identity.key", "office/master.key"] {
        assert!(is_private(&path.join(file)), "{file}");
    }
    let config = fs::read_to_string(path.join("office.toml")).unwrap();
    assert!(config.contains("bundle = \"office/group.bundle\""), "{config}");
    assert!(refused(path, &init).contains("exists, and is kept"));
    let joins = ["init", "quorum", "--listen", "192.0.2.1:6530", "--joins", "--out", "new.toml"];
    printed(path, &joins);
    assert!(!fs::read_to_string(path.join("new.toml")).unwrap().contains("share ="));
    fs::write(path.join("broken"), "no bundle").unwrap();
    let broken =
        ["init", "quorum", "--listen", "192.0.2.1:1", "--joins", "broken", "--out", "b.toml"];
    assert!(refused(path, &broken).contains("not a bundle of a quorum"));
    assert!(!path.join("b.toml").exists());
}

#[test]
fn the_commands_of_a_relay_are_printed_with_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (host, via) in
        [("relay.example", "relay.example:7100"), ("2001:db8::1", "[2001:db8::1]:7100")]
    {
        let line = printed(path, &["init", "relay", "--host", host]);
        assert_eq!(line, format!("sunder transport receive --via {via} --out inbox"));
    }
    let notes = sunder(path, &["init", "relay", "--listen", "[::1]:7200"]).stderr;
    let notes = String::from_utf8(notes).unwrap();
    assert!(notes.contains("enable --now sunder-relay@7200"), "{notes}");
    assert!(notes.contains("Environment=ADDRESS=[::1]"), "{notes}");
    // -q leaves only the line for the other end.
    let quiet = sunder(path, &["-q", "init", "relay", "--host", "relay.example"]);
    assert!(quiet.stderr.is_empty() && !quiet.stdout.is_empty(), "{quiet:?}");
    assert!(refused(path, &["init", "relay", "-q", "-v"]).contains("exclude each other"));
}

#[test]
fn a_client_is_added_to_a_tunnel_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let listen = ["--listen", "192.0.2.1:6521", "--listen", "192.0.2.2:6521"];
    let init = [&["init", "tunnel", "--client", "laptop"][..], &listen].concat();
    let first = printed(path, &init);
    let invite = ["tunnel", "invite", "phone", "--network", "192.168.7.0/24"];
    let second = printed(path, &invite);
    let server = path.join("tunnel.toml");
    assert!(errors_in(&server).is_empty(), "{:?}", errors_in(&server));
    for (line, name, address) in
        [(&first, "laptop", "10.9.0.2/24"), (&second, "phone", "10.9.0.3/24")]
    {
        let out = format!("{name}.toml");
        printed(path, &[arguments_of(line), vec!["--out", &out]].concat());
        let client = fs::read_to_string(path.join(out)).unwrap();
        assert!(client.contains(address), "{client}");
        let fingerprints = [format!("{name}/tunnel.key"), format!("tunnel/{name}.key")]
            .map(|file| printed(path, &["key", "show", &file]));
        assert_eq!(fingerprints[0], fingerprints[1]);
        assert!(is_private(&path.join(format!("tunnel/{name}.key"))));
    }
    assert!(is_private(&server));

    // Nothing is left of an invitation that is refused.
    let before = fs::read_to_string(&server).unwrap();
    assert!(before.contains("networks = [\"10.9.0.3/32\", \"192.168.7.0/24\"]"), "{before}");
    let refused_as = |arguments: &[&str], expected: &str| {
        let refused = refused(path, arguments);
        assert!(refused.contains(expected), "{expected}: {refused}");
    };
    refused_as(&invite, "phone.key exists, and is kept");
    refused_as(&["tunnel", "invite", "x", "--network", "192.168.0.0/16"], "a network of phone");
    refused_as(
        &["tunnel", "invite", "x", "--server", "192.0.2.9:1"],
        "--server 2 times, once for each channel",
    );
    refused_as(&["tunnel", "invite", "x", "--config", "phone.toml"], "run this at the server");
    assert_eq!(fs::read_to_string(&server).unwrap(), before);
    assert!(!path.join("tunnel/x.key").exists());
    printed(path, &[&["init", "tunnel", "--out", "one.toml"][..], &listen].concat());
    refused_as(&["tunnel", "invite", "x", "--config", "one.toml"], "has one client");

    // Two clients with the same key are found by doctor.
    fs::copy(path.join("tunnel/laptop.key"), path.join("tunnel/phone.key")).unwrap();
    assert!(
        errors_in(&server).iter().any(|it| it.contains("the same key")),
        "{:?}",
        errors_in(&server)
    );
}

/// The commands after a prompt in a guide, each with the line that it prints, if there is one.
fn examples(guide: &str, prompt: &str) -> Vec<(String, String)> {
    let guide = guide.replace("\\\n", "");
    let lines: Vec<&str> = guide.lines().collect();
    let commands = lines.iter().zip(lines.iter().skip(1)).filter_map(|(line, next)| {
        let command = line.trim().strip_prefix(prompt)?.strip_prefix("$ ")?;
        Some((command.split_whitespace().collect::<Vec<_>>().join(" "), next.trim().to_owned()))
    });
    commands.filter(|(command, _)| command.contains(" init ")).collect()
}

#[test]
fn the_commands_of_the_guides_to_tunnels_and_streams_print_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let streams = include_str!("../../../../../docs/guides/micss.md");
    let tunnel = include_str!("../../../../../docs/guides/tunnel.md");
    let (command, shown) = examples(streams, "server").remove(0);
    assert_eq!(printed(path, &arguments_of(&command)), shown);
    let (command, _) = examples(streams, "client").remove(0);
    assert_eq!(printed(path, &arguments_of(&command)), "sunder proxy --config proxy.toml");
    let (command, shown) = examples(tunnel, "server").remove(0);
    let line = printed(path, &arguments_of(&command));
    let (start, _) = shown.split_once("key=").unwrap();
    assert!(
        line.starts_with(start)
            && line.ends_with("192.0.2.10:6521,198.51.100.10:6521,203.0.113.10:6521'"),
        "{line}"
    );
}

/// The server listens on addresses, and its client knows it by names.
#[test]
fn a_client_gets_the_names_of_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let names = ["vpn-a.example.com:6521", "vpn-b.example.com:6521"];
    let listen = ["--listen", "192.0.2.1:6521", "--listen", "192.0.2.2:6521"];
    let servers = ["--server", names[0], "--server", names[1]];
    let init = [&["init", "tunnel"][..], &listen, &servers].concat();
    let line = printed(path, &init);
    let server = fs::read_to_string(path.join("tunnel.toml")).unwrap();
    assert!(server.contains("listen = \"192.0.2.2:6521\"") && !server.contains("vpn"), "{server}");
    printed(path, &[arguments_of(&line), vec!["--out", "client.toml"]].concat());
    let client = fs::read_to_string(path.join("client.toml")).unwrap();
    for name in names {
        assert!(client.contains(&format!("server = \"{name}\"")), "{client}");
    }
    let few = [&["init", "tunnel", "--out", "few.toml"][..], &listen, &servers[..2]].concat();
    let refused = refused(path, &few);
    assert!(refused.contains("give --server 2 times, once for each --listen"), "{refused}");
    assert!(!path.join("few.toml").exists());
}

#[test]
fn a_line_with_the_key_can_come_from_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let line = printed(path, &["init", "tunnel", "--listen", "192.0.2.1:6521"]);
    let mut join = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["tunnel", "join", "-", "--out", "client.toml"])
        .current_dir(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    join.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    let Output { status, stderr, .. } = join.wait_with_output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let keys = ["tunnel", "client"]
        .map(|end| fs::read_to_string(path.join(end).join("tunnel.key")).unwrap());
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn a_server_and_a_proxy_of_streams_are_set_up_with_two_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let line = printed(
        path,
        &[
            "init",
            "serve",
            "--listen",
            "192.0.2.1:7000",
            "--listen",
            "192.0.2.2:7000",
            "--allow",
            "localhost:80",
        ],
    );
    assert_eq!(line, "sunder init proxy --server 192.0.2.1:7000 --server 192.0.2.2:7000");
    assert_eq!(printed(path, &arguments_of(&line)), "sunder proxy --config proxy.toml");
    for config in ["serve.toml", "proxy.toml"] {
        let errors = errors_in(&path.join(config));
        assert!(errors.is_empty(), "{errors:?}");
    }
    assert!(refused(path, &["init", "serve"]).contains("serve.toml exists"));
    let nothing = refused(path, &["init", "serve", "--out", "x.toml"]);
    assert!(nothing.contains("--listen is missing"), "{nothing}");
    let service = ["init", "serve", "--listen", "192.0.2.1:1", "--allow", "web", "--out", "x.toml"];
    let service = refused(path, &service);
    assert!(service.contains("allow") && !path.join("x.toml").exists(), "{service}");
    // Nobody reaches this host at an address that is every one.
    let any = ["--listen", "0.0.0.0:7000", "--allow", "localhost:80", "--out", "any.toml"];
    let line = printed(path, &[&["init", "serve"][..], &any].concat());
    assert_eq!(line, "sunder init proxy --server HOST:7000");
}

#[test]
#[cfg(feature = "mix")]
fn a_proxy_of_chats_and_its_administrator_are_set_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let line = printed(path, &["init", "mix", "--listen", "127.0.0.1:6700"]);
    assert!(is_private(&path.join("mix/identity.key")));
    let line = line.replace("HOST", "127.0.0.1").replace("NAME", "ann").replace("GROUP", "friends");
    let group = printed(path, &arguments_of(&line));
    let config = path.join("mix.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap() + &group).unwrap();
    let errors = errors_in(&config);
    assert!(errors.is_empty(), "{errors:?}");
}
