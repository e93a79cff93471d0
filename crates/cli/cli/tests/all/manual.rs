//! `sunder manual` writes a page for each command, and completions that the shells accept.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes everything to a directory.
fn write_manual(share: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["manual", "--out"])
        .arg(share)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The subcommands that `--help` lists, before the options.
fn subcommands(words: &[&str]) -> Vec<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_sunder")).args(words).arg("-h").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Options:\n").next().unwrap();
    if !list.contains(" <COMMAND>\n") {
        return Vec::new();
    }
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn each_command_has_a_man_page_with_its_examples() {
    let share = tempfile::tempdir().unwrap();
    write_manual(share.path());
    let page = |name: &str| {
        let path = share.path().join(format!("man/man1/{name}.1"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    page("sunder");
    let commands = subcommands(&[]);
    assert!(commands.iter().any(|name| name == "split"), "{commands:?}");
    for command in &commands {
        page(&format!("sunder-{command}"));
        for inner in subcommands(&[command]) {
            page(&format!("sunder-{command}-{inner}"));
        }
    }
    let split = page("sunder-split");
    assert!(split.contains("sunder split \\-k 2 \\-m 3 \\-\\-out /mnt/backup plan.pdf"), "{split}");
    assert!(!share.path().join("man/man1/sunder-manual.1").exists(), "it is hidden");
}

#[test]
fn shells_accept_the_completions() {
    let share = tempfile::tempdir().unwrap();
    write_manual(share.path());
    for (shell, file) in [
        ("bash", "bash-completion/completions/sunder"),
        ("zsh", "zsh/site-functions/_sunder"),
        ("fish", "fish/vendor_completions.d/sunder.fish"),
    ] {
        let path = share.path().join(file);
        assert!(fs::read_to_string(&path).unwrap().contains("transport"), "{file}");
        let mut check = Command::new(shell);
        let check = check.arg("-n").arg(&path).stdin(Stdio::null()).output();
        match check {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(error) => eprintln!("skipped: {shell} cannot be run: {error}"),
        }
    }
}
