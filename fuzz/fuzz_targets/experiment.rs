//! Experiment files: any text is an experiment, or rejected with an error of one line.
#![no_main]

use std::path::Path;

use lab::Experiment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Experiment::parse(Path::new("fuzz.toml"), text) {
        let message = error.to_string();
        assert!(message.starts_with("fuzz.toml: ") && !message.contains('\n'), "{message}");
    }
});
