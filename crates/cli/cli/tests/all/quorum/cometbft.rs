//! Servers that agree by CometBFT, which runs as a process beside each. `make setup` builds it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::group::{Group, Server, error_of, health, wait_until};
use crate::common::{cometbft, free_address, sunder};

/// Starts CometBFT again when it has ended, as a service manager does.
const SUPERVISOR: &str = "while :; do \"$0\" start --home \"$1\" >> \"$1/output\" 2>&1 & \
                          echo $! > \"$1/pid\"; wait $!; sleep 0.2; done";

/// CometBFT at a server. It is killed when dropped.
struct Cometbft {
    supervisor: Child,
    home: PathBuf,
}

impl Cometbft {
    fn start(program: &Path, home: PathBuf) -> Self {
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR])
            .args([program, &home])
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { supervisor, home }
    }

    /// The number of its process.
    fn pid(&self) -> String {
        fs::read_to_string(self.home.join("pid")).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Cometbft {
    fn drop(&mut self) {
        // The supervisor and CometBFT are in one group of processes.
        let group = format!("-{}", self.supervisor.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).status();
        let _ = self.supervisor.wait();
    }
}

/// A group whose log CometBFT runs, at each server with a directory of its own.
fn group(servers: usize) -> Group {
    let group = Group::new(servers);
    for number in 1..=servers {
        let config = group.path(&format!("{number}.toml"));
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("cometbft = \"cometbft-{number}\"\n{text}")).unwrap();
        let listen = free_address().to_string();
        let config = format!("{number}.toml");
        let printed = group.run(&["cometbft-config", "--config", &config, "--listen", &listen]);
        assert!(printed.starts_with("cometbft start --home /"), "{printed}");
    }
    group
}

/// The height up to which a server has applied the log.
fn height(group: &Group, number: usize) -> u64 {
    let found = health(&group.path(&format!("{number}.api"))).unwrap_or_default();
    let digits = found.split("\"height\":").nth(1).unwrap_or_default();
    digits.split(|it: char| !it.is_ascii_digit()).next().unwrap().parse().unwrap_or(0)
}

/// Approves or cancels something, which the log commits, and waits until servers have it.
fn commit(group: &Group, arguments: &[&str], servers: &[usize]) {
    let before: Vec<u64> = servers.iter().map(|&number| height(group, number)).collect();
    group.run(arguments);
    let rows = |number: &usize| {
        let output = fs::read_to_string(group.path(&format!("cometbft-{number}/output")));
        format!("\nCometBFT {number}: {}", output.unwrap_or_default())
    };
    let printed = || servers.iter().map(rows).collect::<String>();
    for (&number, before) in servers.iter().zip(before) {
        let what = format!("{arguments:?} at server {number}");
        wait_until(&what, || {
            height(group, number) > before || {
                let is_healthy = health(&group.path(&format!("{number}.api"))).is_some();
                assert!(is_healthy, "{what}{}{}", group.logs(), printed());
                false
            }
        });
    }
}

#[test]
fn servers_agree_by_cometbft_which_is_killed_and_one_server_is_replaced() {
    let Some(program) = cometbft() else { return };
    let group = group(5);
    let text = fs::read_to_string(group.path("nodes.toml")).unwrap();
    let all: Vec<&str> = text.split("[[server]]").skip(1).collect();
    let list: Vec<String> = all[1..].iter().map(|it| format!("[[server]]{it}")).collect();
    fs::write(group.path("replaced.toml"), list.concat()).unwrap();
    let start = |number: usize| {
        let home = group.path(&format!("cometbft-{number}"));
        (group.start(number), Cometbft::start(&program, home))
    };
    let mut servers: Vec<(Server, Cometbft)> = (1..=4).map(start).collect();
    group.wait_until_healthy(1..=4);
    fs::write(group.path("first"), "first\n").unwrap();
    for socket in ["1.api", "2.api"] {
        group.run(&["register", "--socket", socket, "first"]);
    }
    group.run(&["sign", "--socket", "1.api", "first"]);
    assert!(group.openssl_accepts("first"));

    servers.push(start(5));
    group.wait_until_listening(5);
    let approve = ["refresh", "--no-wait", "--socket", "1.api", "--to", "replaced.toml"];
    commit(&group, &approve, &[1, 2, 3, 4]);

    // One CometBFT is killed and does not come back: its server says so, and the others continue.
    let (server, cometbft) = servers.remove(1);
    drop(cometbft);
    wait_until("the server says that CometBFT does not run", || {
        let found = health(&group.path("2.api")).unwrap_or_default();
        found.contains("CometBFT has not run for")
    });
    commit(&group, &["refresh", "--withdraw", "--socket", "1.api"], &[1, 3, 4]);
    let home = group.path("cometbft-2");
    servers.insert(1, (server, Cometbft::start(&program, home)));
    let reached = height(&group, 1);
    wait_until("it catches up", || height(&group, 2) >= reached);
    group.wait_until_healthy(1..=4);

    // A server is killed: CometBFT ends, comes back with it, and loses nothing.
    let (server, cometbft) = servers.remove(2);
    let before = cometbft.pid();
    drop(server);
    wait_until("CometBFT was started again", || cometbft.pid() != before);
    servers.insert(2, (group.start(3), cometbft));
    group.wait_until_healthy(1..=4);
    commit(&group, &approve, &[1, 2, 3, 4]);

    // Server 5 replaces server 1, and follows the chain from its first block.
    let done = group.run(&["refresh", "--socket", "2.api", "--to", "replaced.toml"]);
    assert_eq!(done, "epoch 2 has begun\n");
    group.wait_until_healthy(2..=5);
    wait_until("the new server votes", || {
        let status = group.status(&[]);
        status.contains("epoch 2") && !status.contains("without a vote")
    });
    servers.remove(0);
    fs::remove_file(group.path("first.sig")).unwrap();
    for socket in ["2.api", "5.api"] {
        group.run(&["register", "--socket", socket, "first"]);
    }
    group.run(&["sign", "--socket", "5.api", "--encoding", "pss", "first"]);

    // The new group agrees without the old server, and also without one of its own.
    servers.remove(0);
    let again = ["refresh", "--no-wait", "--socket", "5.api", "--to", "replaced.toml"];
    commit(&group, &again, &[3, 4, 5]);
    servers.insert(0, start(2));
    group.wait_until_healthy(2..=5);
    let done = group.run(&["refresh", "--socket", "3.api", "--to", "replaced.toml"]);
    assert_eq!(done, "epoch 3 has begun\n");
    group.wait_until_healthy(2..=5);
}

/// The old servers must decide one more block after the one that ends their epoch, with the keys
/// that they wipe then. So nothing is lost if everything stops at this moment.
#[test]
fn a_refresh_by_cometbft_continues_when_everything_was_killed() {
    let Some(program) = cometbft() else { return };
    let group = group(4);
    let start = |number: usize| {
        let home = group.path(&format!("cometbft-{number}"));
        (group.start(number), Cometbft::start(&program, home))
    };
    let mut servers: Vec<(Server, Cometbft)> = (1..=4).map(start).collect();
    for epoch in 2..=4 {
        group.wait_until_healthy(1..=4);
        for socket in ["1.api", "2.api"] {
            group.run(&["refresh", "--no-wait", "--socket", socket, "--to", "old.toml"]);
        }
        // Servers and CometBFT, or only CometBFT, are killed somewhere in the refresh.
        let begun = format!("\"epoch\":{epoch},");
        let has_begun = |number: usize| {
            let found = health(&group.path(&format!("{number}.api")));
            found.is_some_and(|found| found.contains(&begun))
        };
        let after = height(&group, 3) + if epoch == 2 { 1 } else { 4 };
        wait_until("the log goes on", || height(&group, 3) > after || has_begun(3));
        if epoch < 4 {
            servers.clear();
        } else {
            let pids = servers.iter().map(|(_, cometbft)| cometbft.pid());
            let killed = Command::new("kill").args(["-s", "KILL"]).args(pids).status();
            assert!(killed.unwrap().success());
        }
        if servers.is_empty() {
            servers.extend((1..=4).map(start));
        }
        wait_until("the epoch begins at all servers", || (1..=4).all(has_begun));
    }
}

#[test]
fn a_server_names_the_wrong_set_up_of_cometbft() {
    let group = group(4);
    let place = group.place.path();
    let write = ["quorum", "cometbft-config", "--config", "1.toml", "--listen", "127.0.0.1:1"];
    let message = error_of(place, &write, 1);
    assert!(message.contains("config.toml exists, with other content"), "{message}");
    fs::remove_dir_all(group.path("cometbft-1")).unwrap();
    let refused = |config: &str| {
        let output = sunder(place, &["quorum", "node", "--config", config]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refused("1.toml");
    assert!(message.contains("`sunder quorum cometbft-config` writes one"), "{message}");
    // A group keeps its engine.
    fs::create_dir(group.path("store-2")).unwrap();
    fs::write(group.path("store-2/log.sqlite"), "").unwrap();
    let message = refused("2.toml");
    assert!(message.contains("log.sqlite, the log of another engine"), "{message}");
    let text = fs::read_to_string(group.path("3.toml")).unwrap();
    let without = text.split_once('\n').unwrap().1;
    fs::write(group.path("3.toml"), without).unwrap();
    let write = ["quorum", "cometbft-config", "--config", "3.toml", "--listen", "127.0.0.1:1"];
    let message = error_of(place, &write, 1);
    assert!(message.contains("no `cometbft`"), "{message}");
}
