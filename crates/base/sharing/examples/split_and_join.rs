//! Splits a secret into shares, loses one, damages another, and joins the rest.
//!
//! `cargo run --package sunder-sharing --example split_and_join`

use std::error::Error;
use std::io::{self, Write};

use random::RandomGenerator;
use sunder_sharing::{Share, SharingParameters, tamper};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut generator = RandomGenerator::seeded()?;
    let sharing = SharingParameters::shamir(2, 3)?;
    let sealed = tamper::seal(b"attack at dawn", &mut generator)?;
    let shares = sharing.split(&sealed, &mut generator)?;
    writeln!(out, "{shares:?}")?;

    let joined = sharing.join([&shares[2], &shares[0]])?;
    writeln!(out, "shares 3 and 1: {}", String::from_utf8_lossy(tamper::open(&joined)?))?;

    let mut bytes = shares[1].bytes().to_vec();
    bytes[0] ^= 1;
    let damaged = Share::new(shares[1].coordinate(), bytes)?;
    let joined = sharing.join([&shares[0], &damaged])?;
    match tamper::open(&joined) {
        Ok(_) => writeln!(out, "share 2 was changed, and nothing noticed it")?,
        Err(error) => writeln!(out, "shares 1 and 2: {error}")?,
    }
    Ok(())
}

#[test]
fn the_output_is_as_expected() {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    let expected = "[Share 1 of 46 bytes, Share 2 of 46 bytes, Share 3 of 46 bytes]
shares 3 and 1: attack at dawn
shares 1 and 2: the tag does not fit: the data was changed
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
