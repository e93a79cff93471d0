//! `sunder lab run` with a user's scripts, and in shards.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::{lab, performed, sunder};

const PAIR: &str = r#"
about = "A page over two transports"
attempts = 1
[sweep]
transport = ["tcp", "pigeon"]
[hosts.a]
[hosts.b]
[links.wire]
hosts = ["a", "b"]
both = { rate_mbit = 100, delay_ms = 5 }
[measure]
driver = "scripts"
[measure.options]
scripts = "pair"
client = "a"
server = "b"
transport = "{transport}"
[measure.values]
time = { json = "/time_s", unit = "s" }
exit = { json = "/client_exit" }
ended = { json = "/server_ended" }
[measure.texts]
result = { json = "/result" }
"#;

const SERVER: &str = "exec python3 -m http.server 8000 --bind \"$2\"\n";

const CLIENT: &str = "\
if [ \"$3\" != tcp ]; then echo \"there is no transport $3\"; exit 2; fi
curl --silent --fail \"http://$1:8000/page\" > page && cat page
";

#[test]
fn a_pair_of_scripts_runs_over_each_transport() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("pair")).unwrap();
    file("pair/web-server.sh", SERVER);
    file("pair/web-client.sh", CLIENT);
    file("pair/page", "a page\n");
    file("pair.toml", PAIR);
    let Some(results) = performed(place.path(), &["run", "pair.toml", "--json"]) else { return };
    let results: Value = serde_json::from_str(&results).unwrap();
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials[0]["texts"]["result"], "ok");
    assert!(trials[0]["values"]["time"].as_f64().unwrap() >= 0.02, "{results}");
    // The server does not end by itself.
    assert_eq!(trials[0]["values"]["ended"].as_f64(), Some(1.0));
    let failed = "client: exit code 2: there is no transport pigeon";
    assert_eq!(trials[1]["texts"]["result"], failed);
    assert_eq!(trials[1]["values"]["exit"].as_f64(), Some(2.0));
    assert!(trials[1]["values"].get("time").is_none());
    let output = fs::read_to_string(place.path().join("lab-results/pair/1-client.log"));
    assert_eq!(output.unwrap(), "a page\n");
    // Each party has a copy of the folder.
    let mut names: Vec<_> = fs::read_dir(place.path().join("pair")).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    assert_eq!(names.len(), 3);

    fs::remove_file(place.path().join("pair/web-client.sh")).unwrap();
    let refused = lab(place.path(), &["run", "pair.toml", "--out", "again"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && stderr.contains("no pair of"), "{stderr}");
}

/// The blocks of code of a language in the guide.
fn blocks<'a>(guide: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    guide.split(&begin).skip(1).filter_map(|it| Some(it.split_once("```")?.0)).collect()
}

#[test]
fn the_example_in_the_guide_runs_contained_from_a_folder_and_an_archive() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guides/testbed.md");
    let guide = fs::read_to_string(guide).unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("pair")).unwrap();
    let [server, client] = blocks(&guide, "sh")[..] else { panic!("two scripts") };
    file("pair/web-server.sh", server);
    file("pair/web-client.sh", client);
    file("pair/page", "a page\n");
    let mut tar = Command::new("tar");
    tar.args(["-czf", "pair.tgz", "pair"]).current_dir(place.path());
    assert!(tar.status().unwrap().success());
    for scripts in ["pair", "pair.tgz"] {
        let experiment = blocks(&guide, "toml")[0].replace("\"pair\"", &format!("\"{scripts}\""));
        file("pair.toml", &experiment);
        let arguments = ["run", "pair.toml", "--json", "--out", "of-archive"];
        let arguments = if scripts == "pair" { &arguments[..3] } else { &arguments };
        let Some(results) = performed(place.path(), arguments) else { return };
        let results: Value = serde_json::from_str(&results).unwrap();
        let texts = |trial: usize| results["trials"][trial]["texts"].clone();
        assert_eq!(texts(0)["result"], "ok", "{results}");
        assert_ne!(texts(0)["contained"], "not contained");
        let failed = "client: exit code 2: there is no transport pigeon";
        assert_eq!(texts(1)["result"], failed);
        assert!(guide.contains(failed));
    }
    // An archive with a link to a file of the host.
    std::os::unix::fs::symlink("/etc/shadow", place.path().join("pair/link")).unwrap();
    assert!(tar.status().unwrap().success());
    let refused = lab(place.path(), &["run", "pair.toml", "--out", "again"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("pair/link: leads to /etc/shadow, a path from /"), "{stderr}");
}

/// The scripts of the paper (Transputation, figure 4), with another program's name.
#[test]
fn contained_scripts_use_each_transport() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("pair")).unwrap();
    let server = "exec /dev/shm/sunder transport serve --listen $2:7300 --insecure\n";
    let client = "exec /dev/shm/sunder transport measure $1:7300 --transport $3 --send 10000 \
                  --insecure --accept-loss\n";
    file("pair/paper-server.sh", server);
    file("pair/paper-client.sh", client);
    let transports = ["tcp", "udp", "sabul", "burst", "quic", "auto"];
    let names = json!(transports).to_string();
    let experiment = PAIR.replace(r#"["tcp", "pigeon"]"#, &names);
    let experiment = experiment.replace("attempts = 1", "attempts = 1\nkeep_late = true");
    file("pair.toml", &format!("{experiment}contained = {{ json = \"/contained\" }}\n"));
    let Some(results) = performed(place.path(), &["run", "pair.toml", "--json"]) else { return };
    let results: Value = serde_json::from_str(&results).unwrap();
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), transports.len());
    for trial in trials {
        assert_eq!(trial["texts"]["result"], "ok", "{results}");
        let contained = trial["texts"]["contained"].as_str().unwrap();
        assert_ne!(contained, "not contained");
    }
}

const SITES: &str = r#"
about = "Two scripts at two sites"
[hosts.client]
site = "fra"
[hosts.server]
site = "syd"
[links.path]
hosts = ["client", "server"]
[measure]
driver = "scripts"
options = { scripts = "pair", contain = false, client = "client", server = "server", transport = "tcp" }
[measure.values]
time = { json = "/time_s", unit = "s" }
[measure.texts]
result = { json = "/result" }
"#;

/// An agent, killed when dropped.
struct Agent {
    child: Child,
    /// `HOST:PORT/KEY`.
    site: String,
}

impl Agent {
    /// Starts an agent on this host; `None`, after a message, if users may not create namespaces.
    fn start(directory: &Path, peer: &str) -> Option<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["lab", "agent", "--listen", "[::1]:0", "--peer", peer]);
        command.current_dir(directory).env("XDG_STATE_HOME", directory).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let site = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("--sites NAME=").map(|(_, site)| site.to_owned()));
        if let Some(site) = site {
            return Some(Self { child, site });
        }
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        child.wait().unwrap();
        assert!(stderr.contains("does not let you make networks"), "{stderr}");
        eprintln!("skipped: {stderr}");
        None
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_sites_are_reached_by_ipv6() {
    let Ok(free) = TcpListener::bind("[::1]:0") else {
        eprintln!("skipped: this host has no IPv6");
        return;
    };
    let port = free.local_addr().unwrap().port();
    drop(free);
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("pair")).unwrap();
    let server = "exec /dev/shm/sunder transport serve --insecure --listen";
    file("pair/file-server.sh", &format!("{server} \"[$2]:{port}\"\n"));
    let client = "exec /dev/shm/sunder transport measure --insecure --send 10000";
    file("pair/file-client.sh", &format!("{client} --transport \"$3\" \"[$1]:{port}\"\n"));
    file("sites.toml", SITES);
    let key = String::from_utf8(sunder(place.path(), &["transport", "key"]).stdout).unwrap();
    let start = || Agent::start(place.path(), key.trim());
    let (Some(fra), Some(syd)) = (start(), start()) else { return };
    let sites = format!("fra={},syd={}", fra.site, syd.site);
    let run = lab(place.path(), &["run", "sites.toml", "--json", "--sites", &sites]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{stderr}");
    let results: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(results["trials"][0]["texts"]["result"], "ok", "{results}");
    let path = &results["trials"][0]["paths"][0]["before"]["round_trip_ms"];
    assert!(path.as_f64().is_some(), "{results}");
}

const MACHINES: &str = r#"
about = "A file over each transport, between two virtual machines"
attempts = 1
keep_late = true
[sweep]
transport = ["tcp", "udp", "burst"]
[hosts.a]
[hosts.b]
[links.wire]
hosts = ["a", "b"]
both = { rate_mbit = 20, delay_ms = 5 }
[measure]
driver = "scripts"
[measure.options]
scripts = "pair"
client = "a"
server = "b"
transport = "{transport}"
timeout_s = 300
contain = "vm"
limits = { processors = 2 }
[measure.values]
time = { json = "/time_s", unit = "s" }
bytes = { json = "/bytes_to_server" }
[measure.texts]
result = { json = "/result" }
contained = { json = "/contained" }
"#;

#[test]
#[ignore = "six boots of virtual machines: minutes without KVM, for `make soak`"]
fn a_file_crosses_each_transport_between_two_virtual_machines() {
    if let Err(missing) = containment::MachineFiles::find() {
        eprintln!("skipped: {missing}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("pair")).unwrap();
    let receive = "mkdir in
                   exec /dev/shm/sunder transport receive --insecure --once --listen \"$2:7000\" \\
                        --out in\n";
    let send = "head -c 100000 /dev/shm/sunder > file
                exec /dev/shm/sunder transport send --insecure --accept-loss \\
                     --transport \"$3\" file \"$1:7000\"\n";
    file("pair/file-server.sh", receive);
    file("pair/file-client.sh", send);
    file("pair.toml", MACHINES);
    let Some(results) = performed(place.path(), &["run", "pair.toml", "--json"]) else { return };
    let results: Value = serde_json::from_str(&results).unwrap();
    for trial in results["trials"].as_array().unwrap() {
        assert_eq!(trial["texts"]["result"], "ok", "{results}");
        assert!(trial["texts"]["contained"].as_str().unwrap().starts_with("QEMU with"));
        assert!(trial["values"]["bytes"].as_f64().unwrap() > 100_000.0, "{results}");
    }
}

const SPOKEN: &str = r#"
about = "What a shell says"
repetitions = 2
keep_late = true
[sweep]
number = [1, 2, 3, 4]
[hosts.one]
[measure]
host = "one"
run = ["sh", "-c", "echo said: {number}"]
[measure.values]
said = { after = "said:" }
"#;

#[test]
fn shards_are_merged_at_the_command_line() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("spoken.toml"), SPOKEN).unwrap();
    let run = |shard| performed(place.path(), &["run", "spoken.toml", "--shard", shard]);
    let Some(text) = run("1/3") else { return };
    assert!(text.contains("shard 1/3") && text.contains("5 others"), "{text}");
    let names = ["1", "2", "3"].map(|index| format!("lab-results/spoken-{index}-of-3"));
    let merge = ["merge", "spoken.toml", &names[0], &names[1]];
    let refused = lab(place.path(), &merge);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && stderr.contains("spoken-2-of-3"), "{stderr}");
    run("2/3").unwrap();
    let refused = lab(place.path(), &merge);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("2 of 8 trials are missing"), "{stderr}");
    run("3/3").unwrap();
    let merged = performed(place.path(), &[&merge[..], &[&names[2]]].concat()).unwrap();
    assert!(merged.contains("All results are in lab-results/spoken"), "{merged}");
    let results = fs::read(place.path().join("lab-results/spoken/results.json")).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    let said = results["trials"].as_array().unwrap().iter();
    let said: Vec<f64> = said.map(|trial| trial["values"]["said"].as_f64().unwrap()).collect();
    assert_eq!(json!(said), json!([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]));
}

/// The manifest for Kubernetes in the guide, as JSON; `None`, after a message, without `PyYAML`.
fn kubernetes_manifest() -> Option<Value> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/lab.md");
    let guide = fs::read_to_string(guide).unwrap();
    let begin = guide.find("    apiVersion:").unwrap();
    let lines = guide[begin..].lines().take_while(|line| !line.is_empty());
    let manifest: Vec<_> = lines.map(|line| line.strip_prefix("    ").unwrap()).collect();
    let program = "import json, sys, yaml\nprint(json.dumps(yaml.safe_load(sys.stdin)))";
    let mut python = Command::new("python3");
    python.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.stderr(Stdio::piped()).spawn().unwrap();
    // A broken pipe means that Python has failed, and its message says why.
    let _ = python.stdin.take().unwrap().write_all(manifest.join("\n").as_bytes());
    let output = python.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    if stderr.contains("No module named 'yaml'") {
        eprintln!("skipped: Python has no yaml (Debian's package python3-yaml)");
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_manifest_for_kubernetes_runs_each_shard_once() {
    let Some(manifest) = kubernetes_manifest() else { return };
    assert_eq!((&manifest["apiVersion"], &manifest["kind"]), (&json!("batch/v1"), &json!("Job")));
    let spec = &manifest["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "OnFailure");
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    assert_eq!(container["volumeMounts"][0]["mountPath"], container["workingDir"]);

    // Its command, with a function of the shell in place of Sunder.
    let [shell, option, script] = &container["command"].as_array().unwrap()[..] else {
        panic!("{container}")
    };
    assert_eq!((shell, option), (&json!("sh"), &json!("-c")));
    let script = format!("sunder() {{ echo \"$@\"; }}; {}", script.as_str().unwrap());
    let completions = spec["completions"].as_u64().unwrap();
    assert!(completions > 1);
    for index in 0..completions {
        let mut job = Command::new("sh");
        job.args(["-c", &script]).env("JOB_COMPLETION_INDEX", index.to_string());
        let output = job.output().unwrap();
        let arguments = String::from_utf8(output.stdout).unwrap();
        let shard = index + 1;
        assert_eq!(arguments, format!("lab run links --shard {shard}/{completions}\n"));
    }
}
