//! `sunder lab run --sites` with `sunder lab agent` on emulated hosts, which are the sites: the
//! paper's scripts over each transport, two-party computation, links that are emulated between
//! sites, contained scripts, and agents, controllers and paths that fail.
//! Without user namespaces and `/dev/net/tun`, prints that the tests were skipped.
//!
//! `cargo test --package sunder-cli --test sites -- --ignored` also cuts a path for 60 s, with the
//! usual time after which a controller is lost.

mod contained;
#[path = "../emulation/mod.rs"]
mod emulation;
mod faults;
mod hostile;
mod peer;
mod refused;
mod stretched;
mod testbed;

use std::fs;
use std::process::ExitCode;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};
use testbed::{SiteTestbed, results, succeeded};

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
        test("a_pair_of_scripts_runs_between_sites_over_each_transport", scripts),
        test("two_parties_compute_between_sites", computation),
        test("programs_and_files_of_an_experiment_are_at_its_sites", programs),
        test("a_driver_of_emulated_networks_is_refused_at_sites", refused::emulated_driver),
        test("results_of_other_sites_are_not_continued", refused::other_sites),
        test("a_site_with_another_key_is_refused", refused::other_key),
        test("a_controller_with_another_key_is_refused", refused::other_controller),
        test("an_agent_of_another_version_says_which", refused::other_version),
        test("an_agent_takes_one_controller_at_a_time", refused::second_controller),
        test("messages_that_are_none_free_the_agent", refused::malformed_messages),
        test("an_agent_that_answers_wrongly_is_named", hostile::wrong_answers),
        test("a_trial_is_repeated_after_an_agent_was_killed", faults::killed_agent),
        test("a_trial_is_repeated_after_its_path_was_cut", faults::short_cut),
        test("a_run_ends_if_a_site_stays_lost", faults::lost_site),
        test("programs_end_with_their_controller", faults::killed_controller),
        test("a_full_disk_of_a_site_is_named", faults::full_disk),
        test("a_path_that_changes_marks_the_trial", faults::changed_path),
        test("compute_delay_runs_on_links_between_sites", stretched::computation_over_a_delay),
        test("compute_path_runs_over_the_path_itself", stretched::computation_over_the_path),
        test("remicss_identical_runs_on_links_between_sites", stretched::tunnel_over_like_channels),
        test("a_link_shorter_than_its_path_is_invalid", stretched::path_that_is_too_long),
        test("a_pair_of_scripts_runs_on_links_between_sites", stretched::own_scripts),
        test("a_used_port_of_a_link_is_named", stretched::used_port),
        test("forged_datagrams_change_nothing_of_a_link", stretched::forged_datagrams),
        test("a_host_on_links_between_sites_has_its_own_network", stretched::own_network_of_a_host),
        test("what_links_between_sites_lack_is_refused", stretched::refused_settings),
        test("scripts_are_contained_at_sites", contained::contained_pair),
        test("a_contained_script_reaches_no_network_of_a_site", contained::attacked_networks),
        test("a_contained_script_reaches_no_host_without_a_link", contained::attacked_neighbour),
        test("a_contained_script_reaches_no_file_of_a_site", contained::attacked_files),
        test("nothing_of_a_contained_script_outlives_a_killed_agent", contained::killed_agent),
        test("a_trial_is_repeated_after_60_s_without_a_path", faults::long_cut)
            .with_ignored_flag(true),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

const PAIR: &str = r#"
about = "An exchange over each transport"
[sweep]
transport = ["tcp", "udp", "sabul", "burst", "quic", "auto"]
[hosts.client]
site = "fra"
[hosts.server]
site = "syd"
[links.path]
hosts = ["client", "server"]
both = { rate_mbit = 100, delay_ms = 5 }
[measure]
driver = "scripts"
options = { scripts = "pair", contain = false, client = "client", server = "server", transport = "{transport}" }
[measure.values]
time = { json = "/time_s", unit = "s" }
[measure.texts]
result = { json = "/result" }
started = { json = "/started_when" }
"#;

/// Each script is in its own copy of the folder.
const SERVER: &str = "echo serving > here; \
     exec /dev/shm/sunder transport serve --listen \"$2:7300\" --insecure\n";
const CLIENT: &str = "test ! -e here && cat page && \
     exec /dev/shm/sunder transport measure \"$1:7300\" --send 100000 --transport \"$3\" \
     --accept-loss --insecure\n";

fn scripts() {
    let testbed = SiteTestbed::new();
    let pair = testbed.path("pair");
    fs::create_dir(&pair).unwrap();
    fs::write(pair.join("web-server.sh"), SERVER).unwrap();
    fs::write(pair.join("web-client.sh"), CLIENT).unwrap();
    fs::write(pair.join("page"), "a page\n").unwrap();
    let results = results(&succeeded(testbed.run("pair", PAIR, &[])));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 6);
    for trial in trials {
        assert_eq!(trial["texts"]["result"], "ok", "{trial}");
        assert_eq!(trial["texts"]["started"], "the server has opened a port", "{trial}");
        // Two round trips of 20 ms at least, by the clock of the client's site.
        assert!(trial["values"]["time"].as_f64().unwrap() >= 0.04, "{trial}");
        let path = &trial["paths"][0];
        assert_eq!((&path["from"], &path["to"]), (&"fra".into(), &"syd".into()));
        for reading in ["before", "after"] {
            let round_trip = path[reading]["round_trip_ms"].as_f64().unwrap();
            assert!((19.9..60.0).contains(&round_trip), "{path}");
        }
    }
    assert_eq!(results["sites"]["syd"]["hosts"][0], "server");
    let client = fs::read_to_string(testbed.path("pair-results/1-client.log")).unwrap();
    assert!(client.starts_with("a page\n"), "{client}");
    // Nothing of the server's copy is in the folder.
    assert!(!pair.join("here").exists());

    // The same on an emulated network. There the sites have no meaning.
    let tcp = PAIR.replace(r#""tcp", "udp", "sabul", "burst", "quic", "auto""#, r#""tcp""#);
    let emulated = testbed::results(&succeeded(testbed.run_emulated("emulated", &tcp)));
    assert_eq!(emulated["trials"][0]["texts"]["result"], "ok");
    assert!(emulated["sites"].is_null());
}

const COMPUTATION: &str = r#"
about = "AES-128 between two sites"
repetitions = 2
[hosts.fra]
[hosts.other]
[links.path]
hosts = ["fra", "other"]
[measure]
driver = "compute"
[measure.options]
sunder = "{sunder}"
garbler = "fra"
evaluator = "other"
address = "{fra.path}:7400"
circuit = "aes128"
limit_s = 60
[measure.values]
time = { json = "/time_s", unit = "s" }
least = { json = "/least_s", unit = "s" }
gates = { json = "/evaluator/phases/gates/cpu_s", unit = "s" }
"#;

fn computation() {
    let testbed = SiteTestbed::new();
    let results =
        results(&succeeded(testbed.run("computation", COMPUTATION, &["--place", "other=syd"])));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2);
    for trial in trials {
        assert!(trial["values"]["time"].as_f64().unwrap() >= 0.04, "{trial}");
        assert!(trial["values"]["gates"].as_f64().is_some(), "{trial}");
        // What the driver computes from an emulated link is missing.
        assert!(trial["values"]["least"].is_null(), "{trial}");
    }
    assert_eq!(results["sites"]["syd"]["hosts"][0], "other");
    let table = fs::read_to_string(testbed.path("computation-results/results.csv")).unwrap();
    assert!(table.lines().next().unwrap().ends_with(",invalid,path_changed"), "{table}");
}

const PROGRAMS: &str = r#"
about = "A page of one site is read at another"
[hosts.fra]
[hosts.syd]
[links.path]
hosts = ["fra", "syd"]
[files]
"page" = "value: 7\n"
[zeros]
"large" = 5000000
[[programs]]
host = "syd"
run = ["sh", "-c", "ls -l {files}; exec python3 -m http.server 7500 --bind {syd.path} --directory {files}"]
listens = 7500
[[programs]]
host = "syd"
run = ["sh", "-c", "sleep 0.2; echo it is ready; exec sleep 60"]
says = "is ready"
[measure]
host = "fra"
run = ["curl", "--silent", "--fail", "http://{syd.path}:7500/page"]
[measure.values]
value = { after = "value:" }
"#;

fn programs() {
    let testbed = SiteTestbed::new();
    let results = results(&succeeded(testbed.run("programs", PROGRAMS, &[])));
    assert_eq!(results["trials"][0]["values"]["value"], 7.0);
    // What fails at a site is named with the site.
    let failing = PROGRAMS.replace("http://{syd.path}:7500/page", "http://{syd.path}:7500/other");
    let failed = testbed.run("failing", &failing, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("site fra: curl failed with exit code 22"), "{stderr}");
    let missing = PROGRAMS.replace("python3", "no-such-program");
    let failed = testbed.run("missing", &missing, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert!(stderr.contains("site syd: sh ended (exit status: 12"), "{stderr}");
}
