//! Circuits in the text format "Bristol Fashion".
#![no_main]

mod circuits;

use circuits::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| {
    let [garbler, evaluator, outputs] = input.lengths;
    circuits::check(&input, &format!("2 {garbler} {evaluator}\n1 {outputs}\n"));
});
