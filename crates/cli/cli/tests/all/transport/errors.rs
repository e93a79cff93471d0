//! What `sunder transport` says, and with which exit code it ends, for each cause of a failure. The
//! guide has the same words.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use super::Receiver;
use crate::common::sunder;

/// How long it may take until an error is there that was there from the beginning.
const MAX_TIME: Duration = Duration::from_secs(5);

/// How long it may take until what is known to the receiver is in its log.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);

/// A valid public key, of nobody who is here.
const OTHER_KEY: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

/// The guide to transports.
const GUIDE: &str = include_str!("../../../../../../docs/guides/transport.md");

const TRANSPORTS: [&str; 8] = ["auto", "tcp", "mptcp", "udp", "sabul", "burst", "quic", "micss"];

/// The causes at the sender: what they are, the arguments, and the exit code and words.
const WRONG_ARGUMENTS: [(&str, &str, (i32, &str)); 18] = [
    ("there is no such file", "none ADDRESS --key KEY", (2, "no such file: ")),
    ("it is a device", "/dev/null ADDRESS --key KEY", (2, "only a regular file can be sent")),
    ("a hidden file", ".hidden ADDRESS --key KEY", (2, "its name begins with a dot")),
    (
        "a name that looks like another",
        "a\u{202e}b ADDRESS --key KEY",
        (2, "a character that cannot be seen; rename it"),
    ),
    ("no port", "a 127.0.0.1 --key KEY", (2, "no address: give HOST:PORT")),
    ("no such port", "a 127.0.0.1:99999 --key KEY", (2, "no address: give HOST:PORT")),
    ("IPv6 without brackets", "a ::1:7 --key KEY", (2, "an IPv6 address in brackets")),
    ("an unknown name", "a none.invalid:7 --key KEY", (1, UNKNOWN_NAME)),
    ("an unknown interface", "a [fe80::1%none]:7 --key KEY", (1, UNKNOWN_NAME)),
    ("no key", "a ADDRESS", (2, "--key <KEY>")),
    ("a key with a mistake", "a ADDRESS --key 0KEY", (2, "not a public key")),
    (
        "no such transport",
        "a ADDRESS --key KEY --transport tpc",
        (2, "there is no transport tpc; choose auto or one of"),
    ),
    ("a limit without a unit", "a ADDRESS --key KEY --limit 20", (2, "not a rate: give a number")),
    (
        "no such congestion control",
        "a ADDRESS --key KEY --transport tcp --congestion bbr9",
        (2, "no congestion control bbr9"),
    ),
    (
        "one address for micss",
        "a ADDRESS --key KEY --transport micss",
        (2, "micss needs an address for each channel, at least two"),
    ),
    (
        "no such file with the own key",
        "a ADDRESS --key KEY --identity none.key",
        (2, "key none.key: no such file"),
    ),
    (
        "no token",
        "a abc@127.0.0.1:7 --key KEY",
        (2, "invalid relay token: give TOKEN@HOST:PORT as the receiver prints it"),
    ),
    (
        "datagrams by a relay",
        "a 00112233445566778899aabbccddeeff@127.0.0.1:7 --key KEY --transport quic",
        (2, "through a relay, only the transports burst and tcp can be used"),
    ),
];

const UNKNOWN_NAME: &str = "the name cannot be resolved";

/// What a command that fails has printed.
struct Failed {
    code: i32,
    error: String,
    after: Duration,
}

fn failed(run: impl FnOnce() -> Output) -> Failed {
    let start = Instant::now();
    let output = run();
    let after = start.elapsed();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let errors: Vec<&str> =
        stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    assert_eq!(errors.len(), 1, "one line: {stderr}");
    Failed { code: output.status.code().unwrap(), error: errors[0].to_owned(), after }
}

/// Runs what fails within [`MAX_TIME`]: up to three times, because a busy machine may delay some.
fn failed_in_time(what: &str, run: impl Fn() -> Failed) -> Failed {
    let mut late = Vec::new();
    for _ in 0..3 {
        let seen = run();
        if seen.after < MAX_TIME {
            return seen;
        }
        late.push(seen.after);
    }
    panic!("{what}, three times: {late:?}");
}

/// Checks what was printed, and prints it as a line of a table.
fn check(cause: &str, transport: &str, seen: &Failed, (code, words): (i32, &str)) {
    let Failed { code: ended, error, after } = seen;
    println!("| {cause} | {transport} | {ended} | {error} | {:.1} s |", after.as_secs_f64());
    assert_eq!(*ended, code, "{cause}, {transport}: {error}");
    assert!(error.contains(words), "{cause}, {transport}: {error}");
    assert!(GUIDE.contains(words), "the guide has: {words}");
}

/// The address in the form that a transport takes.
fn address(receiver: &Receiver, transport: &str) -> String {
    let address = &receiver.address;
    if transport == "micss" { format!("{address},{address}") } else { address.clone() }
}

/// Sends a file with these arguments behind the address.
fn send(directory: &Path, address: &str, arguments: &[&str]) -> Failed {
    failed(|| {
        let all = [&["transport", "send", "a", address][..], arguments].concat();
        sunder(directory, &all)
    })
}

#[test]
fn causes_are_named_alike_over_all_transports() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join("a"), vec![7; 300_000]).unwrap();
    let inbox = |name: &str| {
        let inbox = place.join(name);
        std::fs::create_dir(&inbox).unwrap();
        inbox
    };
    let open = Receiver::start(&inbox("open"), &[]);
    let strict = Receiver::start(&inbox("strict"), &["--peer", OTHER_KEY]);
    let insecure = Receiver::start(&inbox("insecure"), &["--insecure"]);
    let used = inbox("used");
    std::fs::write(used.join("a"), "other").unwrap();
    let used = Receiver::start(&used, &[]);
    let removed = inbox("removed");
    let gone = Receiver::start(&removed, &[]);
    std::fs::remove_dir(&removed).unwrap();
    println!("| cause | transport | exit code | error | after |\n|---|---|---|---|---|");
    let key_of = |receiver: &Receiver| receiver.options[1].clone();
    for transport in TRANSPORTS {
        let sent = |cause: &str, receiver: &Receiver, security: &[&str], expected| {
            let arguments = [security, &["--transport", transport]].concat();
            let send = || send(place, &address(receiver, transport), &arguments);
            let seen = failed_in_time(&format!("{cause}, {transport}"), send);
            check(cause, transport, &seen, expected);
        };
        let words = "it refuses: the given key is not its key, or bytes were changed on the way";
        sent("another key was given", &open, &["--key", OTHER_KEY], (3, words));
        let words = "it refuses: it does not expect a connection from this end's key";
        let key = key_of(&strict);
        sent("the receiver admits other senders", &strict, &["--key", &key], (3, words));
        let words = "it refuses: it requires encryption: give its key instead";
        sent("insecure, to one that is not", &open, &["--insecure"], (3, words));
        let words = "it refuses: it does not encrypt, and this end requires encryption";
        let key = key_of(&open);
        sent("to one that is insecure", &insecure, &["--key", &key], (3, words));
        let words = "a already exists; send it under another name, or remove it at the receiver";
        let key = key_of(&used);
        sent("another file of this name is there", &used, &["--key", &key], (1, words));
        let words = "the receiver says: cannot write a: its directory is not there any more";
        let key = key_of(&gone);
        sent("the receiver cannot write", &gone, &["--key", &key], (1, words));
        let closed = if transport == "micss" { "127.0.0.1:9,127.0.0.1:9" } else { "127.0.0.1:9" };
        let send = || send(place, closed, &["--key", &key, "--transport", transport]);
        let seen = failed_in_time(&format!("nobody listens, {transport}"), send);
        check("nobody listens", transport, &seen, (1, "nobody listens there"));
    }
}

/// Whom a receiver refuses, its log says, too: the first one by each transport within 10 s.
#[test]
fn the_receiver_logs_whom_it_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join("a"), "text").unwrap();
    std::fs::create_dir(place.join("inbox")).unwrap();
    let cases: [(&[&str], Option<&str>, &[&str]); 4] = [
        (&[], Some(OTHER_KEY), &["another key was given there"]),
        (&["--peer", OTHER_KEY], None, &["is not one that may connect here"]),
        (&[], Some("--insecure"), &["connects without encryption"]),
        (
            &["--insecure"],
            Some(OTHER_KEY),
            &["it connects with encryption, and this end is insecure"],
        ),
    ];
    for (receives, sends, words) in cases {
        for transport in ["tcp", "udp", "sabul", "burst", "quic"] {
            let mut receiver = Receiver::start(&place.join("inbox"), receives);
            let security = match sends {
                Some("--insecure") => vec!["--insecure"],
                Some(key) => vec!["--key", key],
                None => receiver.options.iter().map(String::as_str).collect(),
            };
            let arguments = [&security[..], &["--transport", transport]].concat();
            send(place, &receiver.address, &arguments);
            // It is written after the sender was notified.
            let (mut log, end) = (receiver.log(), Instant::now() + LOG_TIMEOUT);
            while !words.iter().any(|words| log.contains(words)) {
                assert!(Instant::now() < end, "{transport}: {log}");
                thread::park_timeout(Duration::from_millis(5));
                log = receiver.log();
            }
            println!("{transport}: {log}");
            assert!(log.contains("no connection: ") && log.contains("127.0.0.1:"), "{log}");
        }
    }
}

#[test]
fn causes_at_one_end_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join("a"), vec![7; 3_000_000]).unwrap();
    for name in [".hidden", "a\u{202e}b"] {
        std::fs::write(place.join(name), "text").unwrap();
    }
    std::fs::create_dir(place.join("inbox")).unwrap();
    let receiver = Receiver::start(&place.join("inbox"), &[]);
    let (address, key) = (receiver.address.as_str(), receiver.options[1].as_str());
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = nowhere.local_addr().unwrap().to_string();
    println!("| cause | exit code | error | after |\n|---|---|---|---|");
    for (cause, arguments, expected) in WRONG_ARGUMENTS {
        let arguments = arguments.replace("ADDRESS", address).replace("KEY", key);
        let arguments = arguments.split_whitespace();
        let all: Vec<&str> = ["transport", "send"].into_iter().chain(arguments).collect();
        let seen = failed_in_time(cause, || failed(|| sunder(place, &all)));
        check(cause, "", &seen, expected);
    }
    let listen = |address: &str, out: &str| {
        failed(|| sunder(place, &["transport", "receive", "--listen", address, "--out", out]))
    };
    let receiving = [
        (
            "the port is in use",
            listen(&occupied, "inbox"),
            (1, "another program listens there: choose another port"),
        ),
        (
            "another host's address",
            listen("192.0.2.1:7000", "inbox"),
            (1, "this host does not have the address"),
        ),
        (
            "no such directory",
            listen("127.0.0.1:0", "none"),
            (2, "is not a directory: create it first"),
        ),
        (
            "a file for a directory",
            listen("127.0.0.1:0", "a"),
            (2, "is not a directory: create it first"),
        ),
    ];
    for (cause, seen, expected) in receiving {
        check(cause, "", &seen, expected);
    }
}

#[test]
fn changed_bytes_are_named_at_the_sender_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join("a"), vec![7; 3_000_000]).unwrap();
    std::fs::create_dir(place.join("inbox")).unwrap();
    let receiver = Receiver::start(&place.join("inbox"), &[]);
    let key = receiver.options[1].as_str();
    let cases = [
        (
            "a byte of the data was changed",
            [Some(200_000), None],
            "received data was changed on the path",
        ),
        (
            "a byte of the reports was changed",
            [None, Some(90)],
            "received data was changed on the path",
        ),
        (
            "a byte of the answer was changed",
            [None, Some(20)],
            "the other end has not proven that it has the expected key",
        ),
        (
            "a byte of the first message was changed",
            [Some(60), None],
            "the given key is not its key, or bytes were changed on the way",
        ),
        (
            "the mode in the first message was changed",
            [Some(9), None],
            "the other end has not proven that it has the expected key",
        ),
        (
            "the length of the first record was changed",
            [Some(140), None],
            "received data was changed on the path",
        ),
        (
            "a byte of the first record was changed",
            [Some(145), None],
            "received data was changed on the path",
        ),
    ];
    for (cause, changed, words) in cases {
        let on_the_path = changing(&receiver.address, changed);
        let send = || send(place, &on_the_path, &["--key", key, "--transport", "tcp"]);
        let seen = failed_in_time(cause, send);
        check(cause, "tcp", &seen, (3, words));
    }
    // Another service has the port.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((mut client, _)) = other.accept() {
            let _ = client.read(&mut [0; 100]);
            let _ = client.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    let seen = send(place, &at, &["--key", key, "--transport", "tcp"]);
    let words = "the other end has not proven that it has the expected key";
    check("another service listens", "tcp", &seen, (3, words));
    // The kernel accepts, and nobody says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    thread::scope(|scope| {
        for transport in ["auto", "tcp", "mptcp"] {
            let at = &at;
            scope.spawn(move || {
                let send = || send(place, at, &["--key", key, "--transport", transport]);
                let seen = failed_in_time(transport, send);
                let words = "does Sunder listen on this port?";
                check("a service that says nothing", transport, &seen, (1, words));
            });
        }
    });
}

#[test]
fn an_error_is_a_document_with_json() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "text").unwrap();
    let arguments = ["transport", "send", "a", "127.0.0.1:9", "--key", OTHER_KEY, "--json"];
    let output = sunder(directory.path(), &arguments);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], 1);
    let error = document["error"].as_str().unwrap();
    assert!(
        error.starts_with("127.0.0.1:9: ") && error.contains("nobody listens there"),
        "{error}"
    );
}

/// The address of one on the path, who changes the byte at this position to and from the receiver.
fn changing(to: &str, changed: [Option<usize>; 2]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let server = TcpStream::connect(&to).unwrap();
            let ends = [(&client, &server), (&server, &client)];
            for ((from, to), changed) in ends.into_iter().zip(changed) {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || pass_on(from, to, changed));
            }
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, changed: Option<usize>) {
    let (mut buffer, mut passed) = (vec![0; 1 << 16], 0);
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        if let Some(at) = changed.and_then(|at| at.checked_sub(passed)).filter(|at| *at < count) {
            buffer[at] ^= 1;
        }
        passed += count;
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
