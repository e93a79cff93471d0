//! `sunder directory`: a database of its own, and peers that answer on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::thread;

use directory::DirectoryResponder;
use directory::addresses::ChannelAddresses;
use directory::credentials::DirectoryServerKeys;
use directory::message::{DirectoryNonce, REQUEST_LEN};
use keys::{IdentitySecretKey, SharedKey};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with a proxy's configuration, whose peers on loopback answer at this port.
struct Proxy(TempDir);

impl Proxy {
    fn new(port: u16, key: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("peers.key");
        fs::write(&path, "01".repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let config = format!(
            "socks = \"127.0.0.1:0\"\n[directory]\nfile = \"d.sqlite\"\nport = {port}\n\
             [[directory.trust]]\nnetwork = \"127.0.0.0/8\"\n{key}\n"
        );
        fs::write(place.path().join("proxy.toml"), config).unwrap();
        Self(place)
    }

    /// A proxy whose peers do not answer.
    fn alone() -> Self {
        Self::new(1, SHARED)
    }

    /// Runs `sunder directory COMMAND --config proxy.toml ARGUMENTS`.
    fn run(&self, arguments: &str) -> Output {
        let mut words = arguments.split_whitespace();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("directory").args(words.next()).args(["--config", "proxy.toml"]);
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a command that must succeed without warnings.
    fn succeed(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one-line message of a command that must fail with this code.
    fn fail(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}: {message}");
        assert_eq!(message.lines().count(), 1, "{arguments}: {message}");
        message
    }

    fn document(&self) -> Value {
        serde_json::from_str(&self.succeed("list --json")).unwrap()
    }
}

const SHARED: &str = "shared_key = \"peers.key\"";

/// A peer that answers every request, with keys whose bytes have the value `key`, and with replies
/// changed by `change`.
fn peer(key: u8, addresses: &[&str], change: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static) -> u16 {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let keys = DirectoryServerKeys {
        shared: Some(SharedKey::new(&[key; 32])),
        secret: Some(IdentitySecretKey::new(&[key; 32])),
    };
    let responder = DirectoryResponder::new(ChannelAddresses::new(addresses).unwrap(), keys);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut ask = [0; REQUEST_LEN];
            stream.read_exact(&mut ask).unwrap();
            let reply = responder.answer(&ask, DirectoryNonce::new([5; 32])).unwrap();
            stream.write_all(&change(reply.encode())).unwrap();
        }
    });
    port
}

#[test]
fn added_peers_are_listed_until_they_are_removed() {
    let proxy = Proxy::alone();
    assert_eq!(proxy.succeed("list"), "no peers are known yet\n");
    assert_eq!(proxy.document(), json!([]));
    assert!(!proxy.0.path().join("d.sqlite").exists());
    assert_eq!(
        proxy.succeed("add 192.0.2.10 192.0.2.10:6522 203.0.113.10:6522"),
        "192.0.2.10 is reached at 192.0.2.10:6522, 203.0.113.10:6522\n"
    );
    assert_eq!(
        proxy.succeed("add 192.0.2.10 192.0.2.10:1 192.0.2.11:1"),
        "192.0.2.10 is reached at 192.0.2.10:1, 192.0.2.11:1; before, at 192.0.2.10:6522, 203.0.113.10:6522\n"
    );
    proxy.succeed("add fd00::1 [fd00::1]:2 192.0.2.1:3");
    let listed = proxy.succeed("list");
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["peer", "source", "since", "addresses"]);
    assert_eq!((lines[1][0], lines[1][1], lines[1][3]), ("192.0.2.10", "manual", "192.0.2.10:1"));
    assert_eq!(lines[2], ["192.0.2.11:1"]);
    assert_eq!((lines[3][0], lines[3][3]), ("fd00::1", "[fd00::1]:2"));
    assert_eq!(lines[4], ["192.0.2.1:3"]);
    let document = proxy.document();
    assert_eq!(document[1]["addresses"], json!(["[fd00::1]:2", "192.0.2.1:3"]));
    assert_eq!(document[1]["source"], "manual");
    assert_eq!(proxy.succeed("remove fd00::1"), "fd00::1 is removed\n");
    assert_eq!(proxy.document().as_array().unwrap().len(), 1);
    assert!(proxy.fail("remove fd00::1", 1).contains("fd00::1 is not known"));
}

#[test]
fn peers_are_learnt_and_refreshed() {
    for scheme in ["hmac", "ed25519"] {
        let port = peer(1, &["127.0.0.1:6522", "198.51.100.1:6522"], |reply| reply);
        let public = format!("public_key = \"{}\"", IdentitySecretKey::new(&[1; 32]).public());
        let proxy = Proxy::new(port, if scheme == "hmac" { SHARED } else { &public });
        assert_eq!(
            proxy.succeed("refresh"),
            "no addresses were learnt yet: name the peers to ask\n"
        );
        let reached = "127.0.0.1 is reached at 127.0.0.1:6522, 198.51.100.1:6522";
        assert_eq!(proxy.succeed("refresh 127.0.0.1"), format!("{reached}\n"));
        assert_eq!(proxy.succeed("refresh"), format!("{reached}, as before\n"));
        assert_eq!(proxy.document()[0]["source"], scheme);
        // Manually added addresses replace learnt ones and are not asked for again.
        proxy.succeed("add 127.0.0.1 127.0.0.1:9 127.0.0.2:9");
        let message = proxy.fail("refresh 127.0.0.1", 2);
        assert!(
            message.contains("added by hand") && message.contains("sunder directory remove"),
            "{message}"
        );
        assert_eq!(
            proxy.succeed("refresh"),
            "no addresses were learnt yet: name the peers to ask\n"
        );
        assert_eq!(proxy.document()[0]["addresses"], json!(["127.0.0.1:9", "127.0.0.2:9"]));
    }
}

#[test]
fn an_unverified_answer_is_refused() {
    for (key, addresses, place, expected) in [
        (2, "127.0.0.1:1", None, "not authentic"),
        (1, "127.0.0.2:1", None, "127.0.0.1 is not among its addresses"),
        (1, "127.0.0.1:1", Some(44), "not authentic"),
        (1, "127.0.0.1:1", Some(70), "not authentic"),
    ] {
        let port = peer(key, &[addresses], move |mut reply| {
            if let Some(place) = place {
                reply[place] ^= 2;
            }
            reply
        });
        let proxy = Proxy::new(port, SHARED);
        let message = proxy.fail("refresh 127.0.0.1", 3);
        assert!(message.contains(expected), "{message}");
        assert_eq!(proxy.document(), json!([]));
    }
}

#[test]
fn a_list_is_imported_if_the_group_has_signed_it() {
    let proxy = Proxy::alone();
    let file = |name: &str| proxy.0.path().join(name);
    let openssl = |arguments: &str| {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(arguments.split(' ')).current_dir(proxy.0.path()).output();
        let output = output.expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl("genrsa -out group.key 2048");
    openssl("rsa -in group.key -pubout -out group.pem");
    let list = |number, address| {
        let text = format!(
            "format = \"sunder address list 1\"\nnumber = {number}\n[[peer]]\naddress = \"192.0.2.10\"\n\
             channels = [\"192.0.2.10:6522\", \"{address}\"]\n"
        );
        fs::write(file("peers.list"), text).unwrap();
    };
    list(1, "198.51.100.10:6522");
    openssl("dgst -sha256 -sign group.key -out peers.list.sig peers.list");
    let error = proxy.fail("import peers.list", 2);
    assert!(error.contains("no signed_by in [directory]"), "{error}");
    let config = fs::read_to_string(file("proxy.toml")).unwrap();
    let config = config.replace("[directory]\n", "[directory]\nsigned_by = \"group.pem\"\n");
    fs::write(file("proxy.toml"), config).unwrap();
    assert_eq!(proxy.succeed("import peers.list"), "list 1: 1 peers\n");
    let known = proxy.document();
    assert_eq!(known[0]["source"], "signed");
    assert_eq!(known[0]["addresses"], json!(["192.0.2.10:6522", "198.51.100.10:6522"]));
    let error = proxy.fail("import peers.list", 1);
    assert!(error.contains("list 1 is not newer than the last one, 1"), "{error}");
    // What the group has not signed changes nothing.
    list(2, "203.0.113.66:6522");
    let error = proxy.fail("import peers.list", 3);
    assert!(error.contains("the signature is not valid"), "{error}");
    openssl(
        "dgst -sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32 -sign group.key -out peers.list.sig peers.list",
    );
    let error = proxy.fail("refresh 192.0.2.10", 2);
    assert!(error.contains("is in the signed list"), "{error}");
    assert_eq!(proxy.document(), known);
    proxy.succeed("import peers.list");
    assert_eq!(proxy.document()[0]["addresses"][1], "203.0.113.66:6522");
}

#[test]
fn the_worst_failure_decides() {
    let proxy = Proxy::new(peer(2, &["127.0.0.1:1"], |reply| reply), SHARED);
    // The first does not answer, the second has another key, the third is not trusted.
    let output = proxy.run("refresh 127.0.0.2 127.0.0.1 192.0.2.1");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert_eq!(message.lines().count(), 3, "{message}");
    let alone = Proxy::alone();
    assert!(alone.fail("refresh 127.0.0.1", 1).contains("does not answer"));
    assert!(alone.fail("refresh 192.0.2.1", 2).contains("[[directory.trust]]"));
}

#[test]
fn wrong_usage_is_refused_in_one_line() {
    let proxy = Proxy::alone();
    for (arguments, expected) in [
        ("add 192.0.2.1", "give "),
        ("add peer 192.0.2.1:1", "peer"),
        ("add 192.0.2.1 192.0.2.1", "192.0.2.1"),
        ("add 192.0.2.1 192.0.2.1:1 192.0.2.1:1", "192.0.2.1:1 is there twice"),
        ("add 192.0.2.1 224.0.0.1:1", "224.0.0.1:1 is not the address of one host"),
        ("add 192.0.2.1 192.0.2.1:1", "one address is one channel"),
        ("forget 192.0.2.1", "has no command forget"),
    ] {
        let message = proxy.fail(arguments, 2);
        assert!(message.contains(expected), "{message}");
    }
    let path = proxy.0.path().join("proxy.toml");
    for (text, expected) in [
        ("", "no [directory]"),
        ("[directory]\n", "line 1: missing field `file`"),
        ("[directory]\nfile = \"d\"\nmax_age_h = 0\n", "line 3: max_age_h = 0: give 1 to 8760"),
        ("[directory]\nfile = \"d\"\nage = 0\n", "line 3: unknown field `age`"),
        (
            "[directory]\nfile = \"d\"\n[[directory.trust]]\nnetwork = \"x\"\nshared_key = \"k\"\n",
            "line 4: network = \"x\"",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let message = proxy.fail("list", 2);
        assert!(
            message.contains(expected) && message.contains("sunder directory --help"),
            "{message}"
        );
    }
}

#[test]
fn files_that_are_wrong_are_named() {
    let proxy = Proxy::alone();
    let key = proxy.0.path().join("peers.key");
    fs::write(&key, "secret").unwrap();
    assert!(proxy.fail("refresh 127.0.0.1", 2).contains("64 hexadecimal digits"));
    fs::remove_file(&key).unwrap();
    assert!(proxy.fail("refresh 127.0.0.1", 2).contains("sunder key new"));
    fs::write(proxy.0.path().join("d.sqlite"), "no database ".repeat(100)).unwrap();
    for command in ["list", "add 192.0.2.1 192.0.2.1:1 192.0.2.2:1", "remove 192.0.2.1"] {
        assert!(proxy.fail(command, 1).contains("d.sqlite"));
    }
}

#[test]
fn a_key_that_others_may_read_is_named() {
    let proxy = Proxy::alone();
    let key = proxy.0.path().join("peers.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = proxy.run("refresh 127.0.0.1");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("warning: key: others can read "), "{message}");
}

#[test]
fn the_help_has_an_example() {
    for command in ["", "list", "add", "remove", "refresh"] {
        let mut words = vec!["directory"];
        words.extend(command.split_whitespace());
        words.push("--help");
        let output = Command::new(env!("CARGO_BIN_EXE_sunder")).args(words).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains(&format!("Example: sunder directory {command}")), "{help}");
    }
}
