//! Two hospitals count the patients of both who had a complication. Each has one bit for each of
//! 4,096 patients of a register. Both learn the count and nothing else, if the garbler follows the
//! protocol. With `ComputeSecurity::Malicious` in the settings, neither has to.
//!
//! Here both are threads of one program. On two hosts, each runs its half, and the second is given
//! the first one's address and key.

use std::error::Error;

use circuit::{CircuitBuilder, CircuitSchedule};
use sunder_compute::{ComputeRole, ComputeSession, ComputeSettings};
use transport::{
    Connection, ConnectionOptions, ConnectionSecurity, Listener, connect, random_identity,
};

const PATIENTS: u32 = 4_096;

/// The circuit that counts the bits that are 1 in both inputs.
fn common_patients() -> CircuitSchedule {
    let mut builder = CircuitBuilder::new(&[PATIENTS, PATIENTS]);
    let (treated, complications) = (builder.input(0), builder.input(1));
    let both: Vec<_> =
        treated.iter().zip(&complications).map(|(&a, &b)| builder.and(a, b)).collect();
    let count = builder.count_ones(&both);
    CircuitSchedule::new(&builder.finish(&[&count]))
}

/// One hospital's part: its patients, packed, eight in a byte.
fn count(
    connection: Connection,
    role: ComputeRole,
    patients: &[u8],
) -> Result<u32, sunder_compute::Error> {
    let mut session = ComputeSession::start(connection, role, ComputeSettings::default())?;
    let output = session.run(&common_patients(), patients)?.unwrap_or_default();
    session.finish()?;
    Ok(output.iter().rev().fold(0, |count, byte| count << 8 | u32::from(*byte)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let security = ConnectionSecurity::open(random_identity()?);
    let key = security.public_key().ok_or("the first hospital has no key")?;
    let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security))?;
    let address = listener.local_addr().to_string();

    let second = std::thread::spawn(move || {
        let security = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
        let connection = connect(&address, &ConnectionOptions::new(security)).unwrap();
        count(connection, ComputeRole::Evaluator, &[0b0110_0000; PATIENTS as usize / 8])
    });
    let first =
        count(listener.accept()?, ComputeRole::Garbler, &[0b0011_1000; PATIENTS as usize / 8])?;
    let second = second.join().map_err(|_| "the second hospital has failed")??;
    println!("{first} patients of both had a complication; the second hospital has {second}");
    assert_eq!((first, second), (PATIENTS / 8, PATIENTS / 8));
    Ok(())
}
