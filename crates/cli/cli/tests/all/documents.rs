//! Checks the documents: runs every `$ sunder ...` line of a `console` block and compares its
//! output with the document, and searches for the files, modules and items that documents name.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{cometbft, free_port};

#[test]
fn the_examples_in_the_readme_are_correct() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("plan.txt"), "Meet at the bridge at eight.\n").unwrap();
    assert_eq!(run_examples(&document("README.md"), place.path()), 3);
}

#[test]
fn the_examples_in_the_guide_to_shares_are_correct() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("plan.txt"), "Meet at the bridge at eight.\n").unwrap();
    fs::write(place.path().join("key.txt"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::create_dir(place.path().join("shares")).unwrap();
    fs::create_dir(place.path().join("restored")).unwrap();
    let guide = document("docs/guides/shares.md");
    assert_eq!(run_examples_with(&guide, place.path(), without_identifiers), 7);
    let page = fs::read_to_string(place.path().join("shares/key.txt.2.html")).unwrap();
    assert!(page.contains("<figcaption>code 1 of 1: lines 1 to 5</figcaption>"));
}

/// Replaces identifiers of splits, which are random: 32 hexadecimal digits.
fn without_identifiers(text: &str) -> String {
    let is_identifier =
        |word: &&str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let replaced = text.split_inclusive([' ', ';', '\n']).map(|word| {
        let bare = word.trim_end_matches([' ', ';', '\n']);
        if is_identifier(&bare) { word.replace(bare, "ID") } else { word.to_owned() }
    });
    replaced.collect()
}

#[test]
fn the_examples_in_the_guide_to_channels_are_correct() {
    let guide = document("docs/guides/choosing-channels.md");
    let files: Vec<&str> = blocks(&guide, "toml").collect();
    let [three, group, five] = files[..] else { panic!("{} files", files.len()) };
    let place = tempfile::tempdir().unwrap();
    let write = |name, text: String| fs::write(place.path().join(name), text).unwrap();
    write("three.toml", three.to_owned());
    // The guide adds the group to the three channels.
    write("shared.toml", [three, group].concat());
    write("five.toml", five.to_owned());
    assert_eq!(run_examples(&guide, place.path()), 4);
    // The graph in the guide is that of the command in the guide.
    let plot = "plan --channels three.toml --plot uplinks.svg";
    assert!(guide.contains(plot));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    let output = command.args(plot.split(' ')).current_dir(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = fs::read_to_string(place.path().join("uplinks.svg")).unwrap();
    assert_eq!(drawn, document("docs/pictures/uplinks.svg"), "draw it again: sunder {plot}");
}

#[test]
fn the_examples_in_the_guide_to_computing_are_correct() {
    let guide = document("docs/guides/compute.md");
    let place = tempfile::tempdir().unwrap();
    let sunder = Path::new(env!("CARGO_BIN_EXE_sunder")).parent().unwrap().display();
    let path = format!("{sunder}:{}", std::env::var("PATH").unwrap());
    let mut expected = Vec::new();
    let scripts: Vec<&str> = guide.split("```sh\n").skip(1).collect();
    assert_eq!(scripts.len(), 6);
    let verilog = blocks(&guide, "verilog").next().unwrap();
    fs::write(place.path().join("salaries.v"), verilog).unwrap();
    for script in scripts {
        let (script, rest) = script.split_once("```").unwrap();
        // Without an output of its own, that of the example before.
        if let Some((_, output)) = rest.split_once("```text\n") {
            expected = output.split("```").next().unwrap().lines().collect();
        }
        let port = free_port();
        let script = format!("{}\nwait\n", script.replace(":7001", &format!(":{port}")));
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &script]).env("PATH", &path).env("XDG_STATE_HOME", place.path());
        command.current_dir(place.path());
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.sort_unstable();
        assert_eq!(printed, expected, "{script}{}", String::from_utf8_lossy(&output.stderr));
    }
    let example = document("crates/compute/compute/examples/cohorts.rs");
    let example: Vec<&str> = example.lines().map(str::trim).collect();
    assert!(example.len() < 70);
    for line in blocks(&guide, "rust").flat_map(str::lines) {
        assert!(example.contains(&line.trim()), "{line}");
    }
}

#[test]
fn the_examples_in_the_guide_to_chats_are_correct() {
    let guide = document("docs/guides/chat.md");
    let place = tempfile::tempdir().unwrap();
    let port = free_port();
    let configuration = blocks(&guide, "toml").next().unwrap();
    let with_port = |text: &str| text.replace(":6700", &format!(":{port}"));
    fs::write(place.path().join("proxy.toml"), with_port(configuration)).unwrap();
    let scripts: Vec<&str> = blocks(&guide, "sh").collect();
    assert_eq!(scripts.len(), 3);
    let expected = blocks(&guide, "text").next().unwrap();
    let sunder = Path::new(env!("CARGO_BIN_EXE_sunder")).parent().unwrap().display();
    // What runs in the background ends with the script.
    let script = format!("trap 'kill 0' EXIT\n{}", with_port(&scripts.concat()));
    let mut command = Command::new("setsid");
    command.args(["--wait", "sh", "-e", "-c", &script]).current_dir(place.path());
    command.env("PATH", format!("{sunder}:{}", std::env::var("PATH").unwrap()));
    command.env("XDG_STATE_HOME", place.path()).env("RUNTIME_DIRECTORY", place.path());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.ends_with(expected), "{printed}\n{errors}");
}

#[test]
fn the_first_steps_with_streams_are_correct() {
    let printed =
        run_first_steps(&[], &first_steps_at_free_ports("streams", &["7000", "8000", "1080"]));
    assert!(printed.ends_with("Meet at the bridge at eight.\n"), "{printed}");
}

#[test]
fn the_first_steps_with_a_quorum_are_correct() {
    let printed = run_first_steps(&[], &first_steps_at_free_ports("quorum", &["6530"]));
    assert!(printed.ends_with("release.txt.sig: the signature\nVerified OK\n"), "{printed}");
}

/// Four servers in nine commands, and the key moves to four others with no configuration changed.
#[test]
fn the_set_up_in_the_guide_to_quorums_is_correct() {
    let guide = document("docs/guides/quorum.md");
    let scripts: Vec<&str> = blocks(&guide, "sh").collect();
    let [script] = scripts[..] else { panic!("one script") };
    let port = free_port();
    let printed = run_first_steps(&[], &script.replace("6530", &port.to_string()));
    assert_eq!(printed.matches("Verified OK\n").count(), 2, "{printed}");
    assert!(printed.contains("Release 1.0\\n"), "{printed}");
}

/// Four servers that agree by CometBFT, and get new shares.
#[test]
fn the_set_up_in_the_guide_to_cometbft_is_correct() {
    let Some(program) = cometbft() else { return };
    let guide = document("docs/guides/quorum-cometbft.md");
    let script = blocks(&guide, "sh").next().unwrap();
    let [links, nodes] = [(); 2].map(|()| free_port().to_string());
    let script =
        script.replace(":6540", &format!(":{links}")).replace(":26656", &format!(":{nodes}"));
    let path = program.parent().unwrap().display();
    let printed = run_first_steps(&[], &format!("PATH={path}:$PATH\n{script}"));
    assert!(printed.contains("release.txt.sig: the signature\n"), "{printed}");
    assert!(printed.ends_with("epoch 2 has begun\n"), "{printed}");
}

#[test]
fn the_first_steps_with_two_parties_are_correct() {
    let printed = run_first_steps(&[], &first_steps_at_free_ports("compute", &["7001"]));
    let mut values: Vec<&str> = printed.lines().collect();
    values.sort_unstable();
    let expected = ["bob@example.com", "bob@example.com", "eve@example.com", "eve@example.com"];
    assert_eq!(values, expected);
}

#[test]
fn the_first_steps_with_a_tunnel_are_correct() {
    // Namespaces of its own, in which even a user without privileges is root.
    let namespaces =
        ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];
    let needed = "mount -t tmpfs none /run && : <> /dev/net/tun && command -v ping";
    let mut trial = Command::new(namespaces[0]);
    trial.args(&namespaces[1..]).args(["sh", "-c", needed]);
    if !trial.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: namespaces, /dev/net/tun or ping is missing");
        return;
    }
    let script = format!("mount -t tmpfs none /run\n{}", first_steps("tunnel"));
    let printed = run_first_steps(&namespaces, &script);
    assert!(printed.contains("3 packets transmitted, 3 received, 0% packet loss"), "{printed}");
}

/// The script on the page of a system.
fn first_steps(system: &str) -> String {
    let page = document(&format!("docs/systems/{system}.md"));
    let [script] = blocks(&page, "sh").collect::<Vec<_>>()[..] else { panic!("{system}") };
    script.to_owned()
}

/// The script on the page of a system, with free ports in place of `ports`.
fn first_steps_at_free_ports(system: &str, ports: &[&str]) -> String {
    let replaced = |script: String, port: &&str| script.replace(port, &free_port().to_string());
    ports.iter().fold(first_steps(system), replaced)
}

/// Runs a script by `runner`, or as it is. Returns what it prints on standard output.
fn run_first_steps(runner: &[&str], script: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let sunder = Path::new(env!("CARGO_BIN_EXE_sunder")).parent().unwrap().display();
    // What runs in the background ends with the script.
    let script = format!("trap 'kill 0' EXIT\n{script}");
    // `timeout` has a process group of its own.
    let mut command = Command::new("timeout");
    command.arg("120").args(runner).args(["sh", "-e", "-c", &script]).current_dir(place.path());
    command.env("PATH", format!("{sunder}:{}:/usr/sbin", std::env::var("PATH").unwrap()));
    command.env("XDG_STATE_HOME", place.path()).env("RUNTIME_DIRECTORY", place.path());
    let output = command.output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_closed_standard_output_ends_a_command_silently() {
    for arguments in [
        "plan --channel z=0.1,l=0.01,d=5,r=100",
        "plan --json --channel z=0.1,l=0.01,d=5,r=100",
        "lab list",
    ] {
        // The reading end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(arguments.split(' '))
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "sunder {arguments}");
        assert_eq!(output.status.code(), Some(1), "sunder {arguments}");
    }
}

#[test]
fn files_and_modules_in_documents_exist() {
    let files = files_below(&root());
    let mut missing = Vec::new();
    for document in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        let spans = prose.split('`').skip(1).step_by(2);
        let broken_spans = spans.filter(|span| !file_exists(span, &files) || !item_exists(span));
        let folder = document.parent().unwrap();
        let links = prose.split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap());
        let broken_links = links
            .filter(|link| !link.starts_with("http") && !root().join(folder).join(link).exists());
        let broken = broken_spans.chain(broken_links);
        missing.extend(broken.map(|name| format!("{}: {name}", document.display())));
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn sections_to_which_documents_link_exist() {
    let files = files_below(&root());
    let mut missing = Vec::new();
    for document in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for (path, section) in links.filter_map(|link| link.split_once('#')) {
            let folder = document.parent().unwrap();
            let target = if path.is_empty() { document.clone() } else { folder.join(path) };
            if !path.starts_with("http") && !sections(&root().join(target)).contains(section) {
                missing.push(format!("{}: {path}#{section}", document.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// The names by which links find the sections of a document.
fn sections(document: &Path) -> HashSet<String> {
    let text = fs::read_to_string(document).unwrap_or_default();
    let prose: String = text.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

#[test]
fn the_contents_of_the_book_list_every_page_below_docs() {
    let summary = document("docs/SUMMARY.md");
    let links = summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let listed: Vec<PathBuf> = links.map(PathBuf::from).collect();
    let distinct: HashSet<&PathBuf> = listed.iter().collect();
    assert_eq!(distinct.len(), listed.len(), "a page is listed twice");
    let files = files_below(&root().join("docs"));
    let pages = files.iter().filter(|file| file.extension().is_some_and(|end| end == "md"));
    let missing = pages.filter(|page| *page != Path::new("SUMMARY.md") && !distinct.contains(page));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

#[test]
fn every_picture_and_graph_is_linked_from_a_document() {
    let files = files_below(&root());
    let has_end = |file: &PathBuf, wanted: &str| file.extension().is_some_and(|end| end == wanted);
    let mut linked = HashSet::new();
    for document in files.iter().filter(|file| has_end(file, "md")) {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let folder = root().join(document.parent().unwrap());
        let links = text.split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap());
        linked.extend(links.filter_map(|link| folder.join(link).canonicalize().ok()));
    }
    let pictures = files.iter().filter(|file| file.starts_with("docs") && has_end(file, "svg"));
    let missing =
        pictures.filter(|file| !linked.contains(&root().join(file).canonicalize().unwrap()));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

/// The lines of manifests, for applications with this repository in the directory `sunder`.
#[test]
fn dependencies_in_documents_are_crates_of_this_repository() {
    let mut found = 0;
    for document in files_below(&root()) {
        if document.extension().is_none_or(|end| end != "md") {
            continue;
        }
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for line in text.lines().filter(|line| line.contains("path = \"sunder/")) {
            let value = |key: &str| Some(line.split_once(key)?.1.split('"').next().unwrap());
            let package = value("package = \"").unwrap_or(line.split(' ').next().unwrap());
            let manifest = root().join(value("path = \"sunder/").unwrap()).join("Cargo.toml");
            let manifest = fs::read_to_string(manifest).unwrap_or_default();
            assert!(manifest.contains(&format!("name = \"{package}\"\n")), "{document:?}: {line}");
            found += 1;
        }
    }
    assert_eq!(found, 3);
}

#[test]
fn alerts_and_the_dashboard_use_metrics_that_exist() {
    let sources = files_below(&root().join("crates"));
    let sources = sources.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let exported: HashSet<String> = sources
        .flat_map(|file| {
            let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
            let strings = text.split('"').filter(|string| string.starts_with("sunder_"));
            strings.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    for file in ["sunder.rules.yml", "sunder.dashboard.json"] {
        let text = document(&format!("monitoring/{file}"));
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: HashSet<&str> = words.filter(|word| word.starts_with("sunder_")).collect();
        // A histogram has series for its buckets.
        let is_exported =
            |name: &str| exported.contains(name.strip_suffix("_bucket").unwrap_or(name));
        let unknown: Vec<_> = used.iter().filter(|name| !is_exported(name)).collect();
        assert!(used.len() > 20 && unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn every_alert_is_explained_and_tested() {
    let rules = document("monitoring/sunder.rules.yml");
    let (guide, tests) =
        (document("docs/guides/monitoring.md"), document("monitoring/sunder.rules.test.yml"));
    let alerts: Vec<&str> =
        rules.split("alert: ").skip(1).map(|it| it.lines().next().unwrap()).collect();
    for alert in &alerts {
        assert!(guide.contains(&format!("\n| `{alert}` | ")), "{alert}");
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
    }
    assert_eq!(guide.matches("\n| `Sunder").count(), alerts.len());
}

/// Whether a code span is no path of this repository, or a path that exists. Paths with `NAME` are
/// patterns.
fn file_exists(span: &str, files: &[PathBuf]) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_./@-".contains(c);
    if span.contains("NAME") || !span.chars().all(is_path) {
        return true;
    }
    if ["crates/", "docs/", "fuzz/", "scripts/", "systemd/"].iter().any(|top| span.starts_with(top))
    {
        return root().join(span).exists();
    }
    let path = Path::new(span);
    path.extension().is_none_or(|end| end != "rs") || files.iter().any(|file| file.ends_with(path))
}

/// Whether a code span is no path such as `crate::module::Item` of this workspace, or one that
/// exists.
fn item_exists(span: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    let mut names = span.split("::");
    let Some(mut folder) = crate_folder(names.next().unwrap()) else { return true };
    if !span.contains("::") || !span.chars().all(is_path) {
        return true;
    }
    folder.push("src");
    let mut source = fs::read_to_string(folder.join("lib.rs")).unwrap_or_default();
    for name in names {
        let Ok(module) = fs::read_to_string(folder.join(name).with_extension("rs")) else {
            // An item of the last module; what follows belongs to the item.
            let mut words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
            return words.any(|word| word == name);
        };
        source = module;
        folder.push(name);
    }
    true
}

/// The folder of the crate with this name, if there is one.
fn crate_folder(name: &str) -> Option<PathBuf> {
    let mut groups = fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap);
    groups.find_map(|group| Some(group.path().join(name)).filter(|path| path.join("src").exists()))
}

/// The files below a directory, relative to it, without those that are built or hidden.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = PathBuf::from(entry.file_name());
        // Not of the repository: what is built, and the libraries of the page.
        let is_other = matches!(name.to_str(), Some("target" | "node_modules"));
        if name.to_string_lossy().starts_with('.') || is_other {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()).into_iter().map(|file| name.join(file)));
        } else {
            files.push(name);
        }
    }
    files
}

/// Runs the examples of a document in `place`. Returns their number.
fn run_examples(document: &str, place: &Path) -> usize {
    run_examples_with(document, place, str::to_owned)
}

/// Like [`run_examples`]; `normalized` removes what differs between runs.
fn run_examples_with(document: &str, place: &Path, normalized: impl Fn(&str) -> String) -> usize {
    let examples = blocks(document, "console").flat_map(|block| block.split("$ sunder ").skip(1));
    let run = examples.map(|example| {
        let (command, expected) = example.split_once('\n').unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(command.split(' '))
            .current_dir(place)
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(normalized(&printed), normalized(expected), "sunder {command}");
    });
    run.count()
}

/// The contents of a document's code blocks in one language.
fn blocks<'a>(document: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let parts: Vec<&str> = document.split(&format!("```{language}\n")).skip(1).collect();
    parts.into_iter().map(|part| part.split("```").next().unwrap())
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}
