//! Splits a secret into three shares, loses one, damages another, and joins what is left.
//!
//! `cargo run --package sunder-sharing --example split_and_join`

use std::error::Error;

use sunder_sharing::{Generator, Share, Sharing, tamper};

fn main() -> Result<(), Box<dyn Error>> {
    let mut generator = Generator::seeded()?;
    let sharing = Sharing::shamir(2, 3)?;
    let sealed = tamper::seal(b"attack at dawn", &mut generator)?;
    let shares = sharing.split(&sealed, &mut generator)?;
    for share in &shares {
        println!("{share:?}: {:02x?}", share.bytes());
    }

    let joined = sharing.join([&shares[2], &shares[0]])?;
    println!("shares 3 and 1: {}", String::from_utf8_lossy(tamper::open(&joined)?));

    let mut bytes = shares[1].bytes().to_vec();
    bytes[0] ^= 1;
    let damaged = Share::new(shares[1].coordinate(), bytes)?;
    let joined = sharing.join([&shares[0], &damaged])?;
    match tamper::open(&joined) {
        Ok(_) => println!("share 2 was changed, and nothing noticed it"),
        Err(error) => println!("shares 1 and 2: {error}"),
    }
    Ok(())
}
