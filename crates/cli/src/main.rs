//! The `sunder` command.

fn main() {}
