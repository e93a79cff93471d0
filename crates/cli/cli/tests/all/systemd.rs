//! The units for systemd: their commands exist, and systemd accepts them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The directory of the units.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../systemd")
}

/// The units, by name.
fn units() -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let entries = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let units = entries.filter(|(name, _)| name.ends_with(".service"));
    units.map(|(name, path)| (name, fs::read_to_string(path).unwrap())).collect()
}

/// The values of a setting in a unit.
fn values<'a>(unit: &'a str, setting: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).collect()
}

#[test]
fn units_run_existing_commands() {
    let units = units();
    let names: Vec<&str> = units.keys().map(String::as_str).collect();
    let instances = ["mix", "proxy", "quorum", "relay", "serve", "tunnel"];
    let mut expected = instances.map(|name| format!("sunder-{name}@.service")).to_vec();
    expected.push("sunder-metrics.service".to_owned());
    expected.push("sunder-tunnel-close@.service".to_owned());
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (name, unit) in &units {
        let [start] = values(unit, "ExecStart")[..] else { panic!("{name}: one ExecStart=") };
        let words: Vec<&str> = start.split(' ').collect();
        assert_eq!(words[0], "/usr/bin/sunder", "{name}");
        let command = words[1..].iter().take_while(|word| !word.starts_with("--"));
        let sunder = env!("CARGO_BIN_EXE_sunder");
        let help = Command::new(sunder).args(command).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{name}: {option}");
        }
        // Units of different daemons do not share a configuration.
        if let Some(daemon) =
            name.strip_prefix("sunder-").and_then(|it| it.strip_suffix("@.service"))
            && !["relay", "tunnel-close"].contains(&daemon)
        {
            let copy = format!(
                "+/usr/lib/sunder/copy-configuration %i %t/sunder/{daemon}-%i /etc/sunder/{daemon}"
            );
            assert_eq!(values(unit, "ExecStartPre"), [copy]);
        }
        // SIGHUP would end a command that does not handle it.
        assert_eq!(!values(unit, "ExecReload").is_empty(), help.contains("SIGHUP"), "{name}");
    }
}

#[test]
fn services_have_only_the_capabilities_they_need() {
    for (name, rights) in [
        ("mix", ""),
        ("proxy", "CAP_NET_ADMIN CAP_NET_BIND_SERVICE"),
        ("quorum", ""),
        ("relay", "CAP_NET_BIND_SERVICE"),
        ("serve", "CAP_NET_BIND_SERVICE"),
        ("tunnel", "CAP_NET_ADMIN"),
    ] {
        let unit = &units()[&format!("sunder-{name}@.service")];
        for setting in ["AmbientCapabilities", "CapabilityBoundingSet"] {
            assert_eq!(values(unit, setting), [rights], "{name}: {setting}");
        }
        assert_eq!(values(unit, "DynamicUser"), ["yes"]);
        assert_eq!(values(unit, "User"), [format!("sunder-{name}-%i")]);
        assert_eq!(values(unit, "RuntimeDirectory"), [format!("sunder/{name}-%i")]);
    }
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no systemd-analyze (package systemd) to look at the units");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    for (name, unit) in units() {
        // systemd checks that the programs exist.
        let script = folder().join("copy-configuration");
        let unit = unit
            .replace("/usr/bin/sunder", env!("CARGO_BIN_EXE_sunder"))
            .replace("/usr/lib/sunder/copy-configuration", script.to_str().unwrap());
        let path = place.path().join(&name);
        fs::write(&path, unit).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&path)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        // Messages about other units of this system are ignored.
        let message: Vec<&str> = message.lines().filter(|line| line.contains("sunder")).collect();
        assert!(output.status.success() && message.is_empty(), "{name}: {message:#?}");
    }
}

/// Runs the script that copies configurations.
fn copy(instance: &str, runtime: &Path, from: &Path) -> Output {
    let script = folder().join("copy-configuration");
    Command::new(script).arg(instance).args([runtime, from]).output().unwrap()
}

#[test]
fn an_instance_gets_only_its_own_configuration() {
    let place = tempfile::tempdir().unwrap();
    let (from, runtime) = (place.path().join("etc"), place.path().join("run/tunnel-office"));
    fs::create_dir_all(from.join("office")).unwrap();
    fs::create_dir_all(from.join("home")).unwrap();
    fs::create_dir_all(&runtime).unwrap();
    for (name, text) in [
        ("office.toml", "key = \"office/key\"\n"),
        ("office/key", "secret\n"),
        ("home.toml", ""),
        ("home/key", ""),
    ] {
        fs::write(from.join(name), text).unwrap();
        fs::set_permissions(from.join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let to = place.path().join("run/tunnel-office.configuration");
    for _ in ["at the start", "at a reload"] {
        let output = copy("office", &runtime, &from);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
        assert_eq!(fs::read_to_string(to.join("office.toml")).unwrap(), "key = \"office/key\"\n");
        for (name, mode) in
            [("", 0o700), ("office.toml", 0o600), ("office", 0o700), ("office/key", 0o600)]
        {
            let found = fs::metadata(to.join(name)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{name}");
        }
    }
    // If copying fails, the previous copy remains.
    fs::remove_file(from.join("office.toml")).unwrap();
    let missing = copy("office", &runtime, &from);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("office.toml"), "{missing:?}");
    assert!(to.join("office.toml").exists());
    assert_eq!(fs::read_dir(place.path().join("run")).unwrap().count(), 2);
}

#[test]
fn an_instance_gets_its_configuration_from_where_it_was_before() {
    let place = tempfile::tempdir().unwrap();
    let (above, runtime) = (place.path().join("etc"), place.path().join("run/serve-office"));
    let from = above.join("serve");
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&runtime).unwrap();
    fs::write(above.join("office.toml"), "before\n").unwrap();
    let copied = place.path().join("run/serve-office.configuration/office.toml");
    let output = copy("office", &runtime, &from);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&copied).unwrap(), "before\n");
    let asked = String::from_utf8(output.stderr).unwrap();
    assert!(asked.contains("please move"), "{asked}");
    // The new place comes first.
    fs::write(from.join("office.toml"), "now\n").unwrap();
    assert!(copy("office", &runtime, &from).stderr.is_empty());
    assert_eq!(fs::read_to_string(&copied).unwrap(), "now\n");
}
