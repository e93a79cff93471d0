//! Circuits in Bristol's older text format.
#![no_main]

mod circuits;

use circuits::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| {
    let header = input.lengths.map(|bits| bits.to_string()).join(" ");
    circuits::check(&input, &format!("{header}\n"));
});
