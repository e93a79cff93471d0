//! Two hospitals count the patients of both who had a complication. Each has one bit for each of
//! 4,096 patients of a register. Both learn the count and nothing else, if the garbler follows the
//! protocol. With `ComputeSecurity::Malicious` in the settings, neither has to. `cohorts listen
//! 0.0.0.0:7001` on the first host prints its key, and `cohorts connect HOST:7001 KEY` runs on the
//! second. Without arguments, both are threads of one program.

use std::{env, error, sync::mpsc::channel, thread};

use circuit::{CircuitBuilder, CircuitSchedule};
use sunder_compute::{ComputeRole, ComputeSession, ComputeSettings};
use transport::{Connection, ConnectionOptions, ConnectionSecurity, IdentityPublicKey};
use transport::{Listener, connect, random_identity};

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
fn count(link: Connection, role: ComputeRole, patients: &[u8]) -> Result<u32, Error> {
    let mut session = ComputeSession::start(link, role, ComputeSettings::default())?;
    let output = session.run(&common_patients(), patients)?.unwrap_or_default();
    session.finish()?;
    Ok(output.iter().rev().fold(0, |count, byte| count << 8 | u32::from(*byte)))
}

/// The first hospital. `tell` is given its address and key.
fn first(address: &str, tell: impl FnOnce([String; 2])) -> Result<u32, Error> {
    let security = ConnectionSecurity::open(random_identity()?);
    let key = security.public_key().ok_or("the first hospital has no key")?;
    let listener = Listener::bind(address, &ConnectionOptions::new(security))?;
    tell([listener.local_addr().to_string(), key.to_string()]);
    count(listener.accept()?, ComputeRole::Garbler, &[0b0011_1000; PATIENTS as usize / 8])
}

/// The second hospital, with the address and the key of the first.
fn second(address: &str, key: &str) -> Result<u32, Error> {
    let key: IdentityPublicKey = key.parse()?;
    let security = ConnectionSecurity::pinned(random_identity()?, vec![key]);
    let connection = connect(address, &ConnectionOptions::new(security))?;
    count(connection, ComputeRole::Evaluator, &[0b0110_0000; PATIENTS as usize / 8])
}

type Error = Box<dyn error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let patients = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", address] => first(address, |told| println!("connect {}", told.join(" ")))?,
        ["connect", address, key] => second(address, key)?,
        _ => {
            let (tell, told) = channel();
            let other = thread::spawn(|| first("127.0.0.1:0", move |own| tell.send(own).unwrap()));
            let [address, key] = told.recv()?;
            let patients = second(&address, &key)?;
            assert_eq!(other.join().map_err(|_| "the first hospital has failed")??, patients);
            patients
        }
    };
    println!("{patients} patients of both had a complication");
    Ok(())
}
