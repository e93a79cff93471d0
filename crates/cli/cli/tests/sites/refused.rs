//! Sites, controllers and messages that are refused.

use std::io::Write;

use transport::MessageStream;

use super::emulation::until;
use super::peer::{answer, connected, hello, version, welcomed};
use super::testbed::{SiteTestbed, results, succeeded};

pub(crate) const SPOKEN: &str = r#"
about = "What a shell says"
[hosts.fra]
[hosts.syd]
[links.path]
hosts = ["fra", "syd"]
[measure]
host = "syd"
run = ["sh", "-c", "echo said: 5"]
[measure.values]
said = { after = "said:" }
"#;

/// An experiment at the sites still works.
pub(crate) fn check_usable(testbed: &SiteTestbed) {
    let results = results(&succeeded(testbed.run("spoken", SPOKEN, &[])));
    assert_eq!(results["trials"][0]["values"]["said"], 5.0);
}

pub(crate) fn emulated_driver() {
    let testbed = SiteTestbed::new();
    let flow = "about = \"Datagrams\"\n[hosts.fra]\n[hosts.syd]\n[links.path]\n\
         hosts = [\"fra\", \"syd\"]\nboth = { rate_mbit = 10 }\n[measure]\ndriver = \"flow\"\n\
         [measure.options]\nfrom = \"fra\"\nto = \"syd\"\naddress = \"{syd.path}:7000\"\n\
         payload = 100\nload = 1\nmu = 1\nseconds = 1\nwarm_up_s = 0\n\
         [measure.values]\nloss = {}\n";
    let output = testbed.run("flow", flow, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let why = "measure.driver: flow is for emulated links only; add --emulate-links, or run it \
         without --sites";
    assert!(stderr.contains(why) && stderr.lines().count() == 1, "{stderr}");
    let in_process = "about = \"Bytes\"\n[hosts.fra]\n[hosts.syd]\n[links.path]\n\
         hosts = [\"fra\", \"syd\"]\n[measure]\ndriver = \"round-trips\"\n\
         [measure.options]\nclient = \"fra\"\nconnect = \"{syd.path}:7000\"\nserver = \"syd\"\n\
         port = 7000\nseconds = 1\n[measure.values]\nmean = {}\n";
    let output = testbed.run("in-process", in_process, &["--emulate-links"]);
    let output = output.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let why = "measure.driver: round-trips is for emulated networks only; run it without --sites";
    assert!(stderr.contains(why) && stderr.lines().count() == 1, "{stderr}");
    let elsewhere = SPOKEN.replace("[hosts.syd]", "[hosts.syd]\nsite = \"tyo\"");
    let output = testbed.run("elsewhere", &elsewhere, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("hosts.syd: is at the site tyo, which is not given"), "{stderr}");
    check_usable(&testbed);
}

pub(crate) fn other_sites() {
    let testbed = SiteTestbed::new();
    check_usable(&testbed);
    let output = testbed.run_emulated("spoken", SPOKEN).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("was begun at other sites, or without sites"), "{stderr}");
    let place = ["--place", "fra=syd"];
    let output = testbed.run("spoken", SPOKEN, &place).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("was begun at other sites, or without sites"), "{stderr}");
    // The same sites: nothing is left to measure.
    check_usable(&testbed);
}

pub(crate) fn other_key() {
    let testbed = SiteTestbed::new();
    let sites = testbed.sites().replace(&testbed.key("syd"), &testbed.key("other"));
    let run = testbed.run_with("spoken", SPOKEN, &sites, "controller", &[]);
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("site syd: ") && stderr.lines().count() == 1, "{stderr}");
    check_usable(&testbed);
}

pub(crate) fn other_controller() {
    let testbed = SiteTestbed::new();
    let run = testbed.run_with("spoken", SPOKEN, &testbed.sites(), "other", &[]);
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("site fra: "), "{stderr}");
    check_usable(&testbed);
}

pub(crate) fn other_version() {
    let testbed = SiteTestbed::new();
    let version = version(&testbed);
    assert!(version.starts_with("protocol 2, sunder "), "{version}");
    until("the refusal is shown", || {
        testbed.text("fra.log").contains("is refused: it has another version")
    });
    // A message that only begins as a hello of that version.
    let mut messages = MessageStream::new(connected(&testbed, "controller").unwrap());
    let mut strange = hello("protocol 9");
    strange.extend([0xff; 1000]);
    assert_eq!(answer(&mut messages, &strange).unwrap()[..2], [1, 0]);
    check_usable(&testbed);
}

pub(crate) fn second_controller() {
    let testbed = SiteTestbed::with_silence(60);
    let (messages, _) = welcomed(&testbed);
    let run = testbed.run("spoken", SPOKEN, &[]);
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("site fra: its agent is busy with another experiment"), "{stderr}");
    drop(messages);
    until("the agent is free", || testbed.text("fra.log").contains("does not control"));
    check_usable(&testbed);
}

pub(crate) fn malformed_messages() {
    let testbed = SiteTestbed::new();
    // A stranger has no connection.
    assert!(connected(&testbed, "other").is_err_and(|error| error.is_security()));
    let begin = [1];
    let outside = [&[2, 6][..], b"../out", &[0; 9]].concat();
    let unknown_program = [7, 5, 0, 1];
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    for (what, message) in [
        ("an unknown request", &[200][..]),
        ("nothing", &[]),
        ("a path that leads out", &outside),
        ("a wait that is too long", &[7, 0, 0xff, 0xff]),
        (
            "a parameter of the machine",
            &[&[15, 1, b'x', 0, 0, 0, 1], &text("net/../kernel/core")[..], &text("1")].concat(),
        ),
        ("a link that is loopback", &[16, 1, b'x', 2, b'l', b'o']),
        ("a contained program without a host", &contained(b"")),
        ("a program without a command", &[4, 1, b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let (mut messages, _) = welcomed(&testbed);
        assert_eq!(answer(&mut messages, &begin).unwrap(), [2], "{what}");
        // A request that cannot be made is refused; one that is none ends the connection.
        assert_eq!(answer(&mut messages, &unknown_program).unwrap()[..2], [1, 2], "{what}");
        assert_eq!(answer(&mut messages, message), None, "{what}");
    }
    // A host and a link that were not made, and a contained program there.
    let (mut messages, _) = welcomed(&testbed);
    assert_eq!(answer(&mut messages, &begin).unwrap(), [2]);
    for message in [&[6, 1, b'x'][..], &contained(b"x")] {
        let failed = answer(&mut messages, message).unwrap();
        assert!(String::from_utf8_lossy(&failed).ends_with("there is no host x"), "{failed:?}");
    }
    // There are no ends of links.
    assert_eq!(answer(&mut messages, &[17]).unwrap(), [13]);
    drop(messages);
    // A length without end.
    let (messages, _) = welcomed(&testbed);
    let mut connection = messages.into_inner();
    connection.write_all(&u64::MAX.to_be_bytes()).and_then(|()| connection.flush()).unwrap();
    assert!(!MessageStream::new(connection).receive(100).is_ok_and(|it| it.is_some()));
    assert!(!testbed.path("out").exists());
    until("the agent is free", || {
        let log = testbed.text("fra.log");
        log.matches("controls this site").count() == log.matches("does not control").count()
    });
    check_usable(&testbed);
}

/// A request for a contained program on a host.
fn contained(host: &[u8]) -> Vec<u8> {
    let mut message = vec![18, 1, b'p', u8::try_from(host.len()).unwrap()];
    message.extend(host);
    // One word, `a`, and no variable.
    message.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 0]);
    let (memory_mib, disk_mib, output_mib, time) = (64_u64, 16_u64, 1_u64, 1_000_000_u64);
    message.extend(memory_mib.to_be_bytes());
    message.extend(16_u32.to_be_bytes());
    message.extend(disk_mib.to_be_bytes());
    message.extend(100_u32.to_be_bytes());
    message.extend(output_mib.to_be_bytes());
    message.extend(1_f64.to_be_bytes());
    message.extend(time.to_be_bytes());
    message
}
