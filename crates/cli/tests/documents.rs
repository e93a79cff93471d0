//! The examples in the README are true: every `$ sunder ...` line of its `console` blocks is run,
//! and prints what the README says it prints.

use std::path::Path;
use std::process::Command;

#[test]
fn the_readmes_examples_print_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("plan.txt"), "Meet at the bridge at eight.\n").unwrap();

    let mut examples = 0;
    for block in readme.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for example in block.split("$ sunder ").skip(1) {
            let (command, expected) = example.split_once('\n').unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
                .args(command.split(' '))
                .current_dir(place.path())
                .output()
                .unwrap();
            let printed = [output.stdout, output.stderr].concat();
            assert_eq!(String::from_utf8(printed).unwrap(), expected, "sunder {command}");
            examples += 1;
        }
    }
    assert_eq!(examples, 3, "the README's examples are found");
}
