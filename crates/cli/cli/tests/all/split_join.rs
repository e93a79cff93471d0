//! `sunder split`, `join` and `check`: the file is restored, and resources are used sparingly.

mod checking;
mod folders;
mod forging;
mod paper;
mod place;
mod recovery;
mod tampering;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use place::{TestDirectory, bytes, error_line, share_names, stderr};

const SEGMENT: usize = 1 << 16;

/// All sets of `k` of the shares `1..=m`, as arguments.
fn subsets(k: u32, m: u8) -> Vec<String> {
    let masks = (0u32..1 << m).filter(|mask| mask.count_ones() == k);
    masks.map(|mask| share_names((1..=m).filter(|x| mask >> (x - 1) & 1 == 1))).collect()
}

#[test]
fn every_size_and_scheme_comes_back() {
    for (k, m, options) in [
        (1, 1, "-k 1 -m 1"),
        (1, 3, "-k 1 -m 3 --rng os"),
        (2, 3, "-k 2 -m 3"),
        (3, 3, "-k 3 -m 3 --scheme xor --rng os"),
        (5, 5, "-k 5 -m 5 --scheme shamir"),
    ] {
        for len in [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 << 20] {
            let place = TestDirectory::new();
            let secret = bytes(len);
            place.split(options, &secret);
            assert_eq!(place.names().len(), usize::from(m));
            for count in k..=m {
                place.succeed(&format!("join {}", share_names((m - count + 1..=m).rev())));
                assert!(place.read("secret") == secret, "{options}, {len} bytes");
                fs::remove_file(place.path("secret")).unwrap();
            }
        }
    }
}

#[test]
fn any_k_shares_join_and_fewer_fail() {
    for (k, m) in [(2, 3), (3, 5)] {
        let place = TestDirectory::new();
        let secret = bytes(SEGMENT + 100);
        place.split(&format!("-k {k} -m {m}"), &secret);
        for shares in subsets(k, m) {
            let joined = place.succeed(&format!("join --out - {shares}"));
            assert!(joined.stdout == secret, "{shares}");
        }
        for shares in subsets(k - 1, m) {
            let message = place.fail(2, &format!("join {shares}"));
            assert!(message.contains("give 1 more"), "{message}");
        }
    }
}

#[test]
fn the_largest_split_works() {
    let place = TestDirectory::new();
    let secret = bytes(1000);
    place.split("-k 255 -m 255", &secret);
    let join = format!("join --out - {}", share_names(1..=255));
    assert_eq!(place.succeed(&join).stdout, secret);
}

#[test]
fn standard_input_and_output() {
    let place = TestDirectory::new();
    let secret = bytes(2 * SEGMENT);
    let mut split = place.command("split -k 2 -m 2 -".split(' '));
    let mut split = split.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    split.stdin.take().unwrap().write_all(&secret).unwrap();
    assert!(split.wait().unwrap().success());
    assert_eq!(place.names(), ["stdin.1.share", "stdin.2.share"]);

    let mut join = place.command("join --out - stdin.2.share -".split(' '));
    join.stdin(fs::File::open(place.path("stdin.1.share")).unwrap());
    let output = join.output().unwrap();
    assert_eq!(stderr(&output), "");
    assert!(output.stdout == secret);
}

#[test]
fn files_are_private_to_their_owner() {
    let place = TestDirectory::new();
    place.split("-k 1 -m 2", b"mine");
    place.succeed("join secret.2.share");
    for name in ["secret", "secret.1.share", "secret.2.share"] {
        let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn json_is_one_document() {
    let place = TestDirectory::new();
    place.write("secret", b"hello");
    let split: serde_json::Value =
        serde_json::from_slice(&place.succeed("split --json -k 2 -m 3 secret").stdout).unwrap();
    let id = split["id"].as_str().unwrap();
    assert_eq!(id.len(), 32);
    let files = ["./secret.1.share", "./secret.2.share", "./secret.3.share"];
    assert_eq!(
        split,
        serde_json::json!({
            "id": id, "scheme": "shamir", "k": 2, "m": 3, "bytes": 5, "files": files,
        })
    );

    place.edit("secret.2.share", |bytes| bytes[50] ^= 1);
    let output = place.run("join --json --out joined secret.1.share secret.2.share secret.3.share");
    let join: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = "changed in 1 of 1 segments, first from byte 0 on";
    assert_eq!(
        join,
        serde_json::json!({
            "file": "joined", "id": id, "scheme": "shamir", "k": 2, "m": 3, "bytes": 5,
            "wrong": [{"file": "secret.2.share", "share": 2, "reason": reason}],
        })
    );
}

#[test]
fn nothing_is_overwritten() {
    let place = TestDirectory::new();
    place.write("secret", b"new");
    place.write("secret.2.share", b"old");
    let message = place.fail(2, "split -k 2 -m 3 secret");
    assert!(message.contains("secret.2.share exists"), "{message}");
    assert_eq!(place.read("secret.2.share"), b"old");

    fs::remove_file(place.path("secret.2.share")).unwrap();
    place.succeed("split -k 2 -m 3 secret");
    let message = place.fail(2, "join secret.1.share secret.2.share");
    assert!(message.contains("./secret exists"), "{message}");
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    place.fail(2, "join --out link secret.1.share secret.2.share");
}

#[test]
fn a_file_without_a_name_needs_one() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 2", b"x");
    fs::rename(place.path("secret.1.share"), place.path("first")).unwrap();
    let message = place.fail(2, "join first secret.2.share");
    assert!(message.contains("--out FILE"), "{message}");
    fs::rename(place.path("first"), place.path("other.1.share")).unwrap();
    place.fail(2, "join other.1.share secret.2.share");
    place.succeed("join --out secret other.1.share secret.2.share");
    assert_eq!(place.read("secret"), b"x");
}

#[test]
fn wrong_usage_has_a_one_line_message() {
    let place = TestDirectory::new();
    place.write("file", b"x");
    fs::create_dir(place.path("directory")).unwrap();
    for arguments in [
        "split",
        "split file",
        "split -k 0 -m 3 file",
        "split -k 1 -m 0 file",
        "split -k 3 -m 2 file",
        "split -k 2 -m 256 file",
        "split -k -1 -m 3 file",
        "split -k two -m 3 file",
        "split -k 2 -m 3 --scheme xor file",
        "split -k 2 -m 3 --scheme aes file",
        "split -k 2 -m 3 --rng dice file",
        "split -k 2 -m 3 --colour file",
        "split -k 2 -m 3 missing",
        "split -k 2 -m 3 file/missing",
        "split -k 2 -m 3 directory",
        "split -k 2 -m 3 ..",
        "split -k 2 -m 3 --out missing file",
        "split -k 2 -m 3 --out file file",
        "split -k 2 -m 3 file file",
        "join",
        "join missing.1.share",
        "join directory",
        "join --json --out - file",
        "jion file",
    ] {
        place.fail(2, arguments);
    }
    let long = "n".repeat(250);
    place.write(&long, b"x");
    place.fail(2, &format!("split -k 1 -m 1 {long}"));
}

#[test]
fn a_full_disk_leaves_no_files() {
    let place = TestDirectory::new();
    place.split("-k 1 -m 1", &bytes(2 * SEGMENT));
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut join = place.command("join --out - secret.1.share".split(' '));
    let message = error_line(&join.stdout(full()).output().unwrap(), 1);
    assert!(message.contains("standard output is incomplete"), "{message}");
    place.write("file", b"x");
    let mut split = place.command("split --json -k 1 -m 1 file".split(' '));
    error_line(&split.stdout(full()).output().unwrap(), 1);

    // A limit on the length of files simulates a full disk: 64 blocks of 512 bytes, or of 1024 in
    // some shells.
    place.write("large", &bytes(4 * SEGMENT));
    let before = place.names();
    for arguments in ["split -k 2 -m 3 large", "join --out joined secret.1.share"] {
        let script = format!("trap '' XFSZ; ulimit -f 64; exec \"$0\" {arguments}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_sunder")]).current_dir(place.path("."));
        error_line(&shell.output().unwrap(), 1);
        assert_eq!(place.names(), before, "{arguments}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_to() {
    let place = TestDirectory::new();
    place.write("file", b"x");
    // Not even root can create files there.
    let message = place.fail(1, "split -k 1 -m 1 --out /sys file");
    assert!(message.contains("--out"), "{message}");
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let place = TestDirectory::new();
    place.split("-k 1 -m 1", &bytes(8 * SEGMENT));
    let mut join = place.command("join --out - secret.1.share".split(' '));
    let mut join = join.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(join.stdout.take());
    let message = error_line(&join.wait_with_output().unwrap(), 1);
    assert!(message.contains("Broken pipe"), "{message}");
}

/// Starts a split of standard input and writes more than the capacity of a pipe, so that most of it
/// has been written to the shares when this returns.
fn split_in_progress(place: &TestDirectory, len: usize) -> Child {
    let mut split = place.command("split -k 2 -m 3 -".split(' '));
    let mut split = split.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    split.stdin.as_mut().unwrap().write_all(&bytes(len)).unwrap();
    split
}

#[test]
fn killed_midway_it_leaves_nothing() {
    // Not SIGINT, which is ignored if the tests run in the background.
    for signal in ["-KILL", "-TERM"] {
        let place = TestDirectory::new();
        let mut split = split_in_progress(&place, 32 * SEGMENT);
        let shares = || place.names().into_iter().filter(|name| name.starts_with("stdin"));
        assert_eq!(shares().count(), 0);
        let kill = Command::new("sh")
            .args(["-c", "kill \"$0\" \"$1\"", signal, &split.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert!(!split.wait().unwrap().success());
        assert_eq!(shares().count(), 0, "{signal}");
        // Only a kill leaves a file with a temporary name.
        assert!(signal == "-KILL" || place.names().is_empty(), "{signal}");
    }
}

/// Sets how the process handles SIGHUP and SIGINT, regardless of how the tests were started.
fn shell(place: &TestDirectory, trap: &str, arguments: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{trap}; exec \"$0\" {arguments}");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_sunder")]).current_dir(place.path("."));
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

#[test]
fn an_interrupt_leaves_all_shares_or_none() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        for _ in 0..10 {
            let place = TestDirectory::new();
            place.write("file", b"x");
            let mut split = place.command("split -k 2 -m 255 file".split(' '));
            let mut split = split.stdout(Stdio::null()).spawn().unwrap();
            let first = place.path("file.1.share");
            while !first.exists() && split.try_wait().unwrap().is_none() {
                std::hint::spin_loop();
            }
            // It may have ended already, but it has not been waited for.
            let _ = kill_process(Pid::from_child(&split), signal);
            split.wait().unwrap();
            assert_eq!(place.names().len(), 1 + 255, "{signal:?}");
        }
    }
}

#[test]
fn an_ignored_sighup_stays_ignored() {
    let place = TestDirectory::new();
    place.write("file", b"x");
    let mut split = shell(&place, "trap '' HUP", "split -k 2 -m 255 file").spawn().unwrap();
    while !place.path("file.1.share").exists() {
        std::hint::spin_loop();
    }
    let _ = kill_process(Pid::from_child(&split), Signal::HUP);
    assert!(split.wait().unwrap().success());
    assert_eq!(place.names().len(), 1 + 255);
}

/// The peak resident memory of a running process, in KiB.
fn peak_memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    let status = status.unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_file() {
    const LIMIT_KIB: u64 = 32 << 10;
    let len = 64 << 20;
    let place = TestDirectory::new();
    let mut split = split_in_progress(&place, len);
    let peak = peak_memory_kib(split.id());
    assert!(peak < LIMIT_KIB, "split: {peak} KiB");
    drop(split.stdin.take());
    assert!(split.wait().unwrap().success());

    let mut join =
        place.command("join --out - stdin.1.share stdin.2.share stdin.3.share".split(' '));
    let mut join = join.stdout(Stdio::piped()).spawn().unwrap();
    let mut joined = vec![0; len];
    // The rest does not fit into a pipe, so the command is still running.
    let (most, rest) = joined.split_at_mut(len - (4 << 20));
    let mut stdout = join.stdout.take().unwrap();
    stdout.read_exact(most).unwrap();
    let peak = peak_memory_kib(join.id());
    assert!(peak < LIMIT_KIB, "join: {peak} KiB");
    stdout.read_exact(rest).unwrap();
    assert!(join.wait().unwrap().success());
    assert!(joined == bytes(len));
}
