//! The examples in the documents are true: every `$ sunder ...` line of a `console` block is run,
//! and prints what the document says it prints.

use std::path::Path;
use std::process::Command;

#[test]
fn the_readmes_examples_print_what_it_says() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("plan.txt"), "Meet at the bridge at eight.\n").unwrap();
    assert_eq!(run_examples(&document("README.md"), place.path()), 4);
}

#[test]
fn the_guide_to_channels_prints_what_it_says() {
    let guide = document("docs/guides/choosing-channels.md");
    let files: Vec<&str> = blocks(&guide, "toml").collect();
    let [three, group, five] = files[..] else { panic!("{} files", files.len()) };
    let place = tempfile::tempdir().unwrap();
    let write = |name, text: String| std::fs::write(place.path().join(name), text).unwrap();
    write("three.toml", three.to_owned());
    // The guide adds the group to the three channels.
    write("shared.toml", [three, group].concat());
    write("five.toml", five.to_owned());
    assert_eq!(run_examples(&guide, place.path()), 4);
}

#[test]
fn a_command_whose_output_nobody_reads_ends_with_nothing_said() {
    for arguments in [
        "plan --channel z=0.1,l=0.01,d=5,r=100",
        "plan --json --channel z=0.1,l=0.01,d=5,r=100",
        "lab list",
    ] {
        // Whoever could read has gone before anything is written.
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

/// Runs the examples of a document in `place`; how many there are.
fn run_examples(document: &str, place: &Path) -> usize {
    let examples = blocks(document, "console").flat_map(|block| block.split("$ sunder ").skip(1));
    let run = examples.map(|example| {
        let (command, expected) = example.split_once('\n').unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(command.split(' '))
            .current_dir(place)
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        assert_eq!(String::from_utf8(printed).unwrap(), expected, "sunder {command}");
    });
    run.count()
}

/// The contents of a document's code blocks in one language.
fn blocks<'a>(document: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let parts: Vec<&str> = document.split(&format!("```{language}\n")).skip(1).collect();
    parts.into_iter().map(|part| part.split("```").next().unwrap())
}

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(name)).unwrap()
}
