//! `sunder demo compute`: AES-128 of a key and a block that two parties do not show each other.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use circuit::{Schedule, generate};
use compute::{Phase, PhaseFigures, Protocol, Role, Session, Settings};
use indicatif::HumanCount;
use serde::Serialize;
use transport::{
    Choice, Connection, Listener, Options, Reader, Security, connect, random_identity,
};

use super::histogram::{Histogram, Verdict, verdict};
use crate::circuits::hex_of;
use crate::commands::compute::{PhaseDocument, failed};
use crate::commands::transport::failed as not_connected;
use crate::console;
use crate::failure::Failure;
use crate::table::{Side, aligned};

/// The example of FIPS 197, appendix B: the garbler's key, the evaluator's block, the output.
const KEY: [u8; 16] = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
const BLOCK: [u8; 16] = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
const ENCRYPTED: [u8; 16] = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();

/// What a party had, learnt and received.
struct Party {
    role: Role,
    input: &'static [u8; 16],
    output: Option<Vec<u8>>,
    figures: [PhaseFigures; Phase::ALL.len()],
    /// All that it has received, decrypted.
    received: Vec<u8>,
}

/// Reads from a connection, and keeps a copy.
struct Recording {
    reader: Reader,
    copy: Arc<Mutex<Vec<u8>>>,
}

impl Read for Recording {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(to)?;
        self.copy.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&to[..count]);
        Ok(count)
    }
}

#[derive(Serialize)]
struct Document {
    circuit: &'static str,
    scheme: &'static str,
    transport: &'static str,
    expected: String,
    is_right: bool,
    parties: [PartyDocument; 2],
}

#[derive(Serialize)]
struct PartyDocument {
    role: String,
    input: String,
    output: Option<String>,
    received_bytes: usize,
    /// `null` if there are too few bytes to tell.
    received_is_noise: Option<bool>,
    received_has_other_input: bool,
    phases: Vec<PhaseDocument>,
}

/// Runs the demonstration.
///
/// # Errors
/// If the output is wrong, or a party has received the other's input.
pub(super) fn run(json: bool) -> Result<(), Failure> {
    let parties = compute_aes()?;
    if json { print_json(&parties) } else { print(&parties) }?;
    check(&parties)
}

/// Both parties, each in a thread, over TCP.
fn compute_aes() -> Result<[Party; 2], Failure> {
    let no_connection = |error: transport::Error| not_connected(&error);
    let schedule = Schedule::new(&generate::aes128());
    let security = Security::open(random_identity().map_err(no_connection)?);
    let key = security.public_key();
    let bound = Listener::bind("127.0.0.1:0", &Options::new(security));
    let listener = bound.map_err(no_connection)?;
    let address = listener.local_addr().to_string();
    let same = schedule.clone();
    let evaluator = thread::spawn(move || {
        let connection = listener.accept().map_err(no_connection)?;
        party(connection, Role::Evaluator, &same, &BLOCK)
    });
    let own = random_identity().map_err(no_connection)?;
    let security = Security::pinned(own, key.into_iter().collect());
    let options = Options { transport: Choice::Named("tcp"), ..Options::new(security) };
    let connection = connect(&address, &options).map_err(no_connection)?;
    let garbler = party(connection, Role::Garbler, &schedule, &KEY)?;
    let failed = Err(Failure::Failed("the evaluator has failed".into()));
    Ok([garbler, evaluator.join().unwrap_or(failed)?])
}

fn party(
    connection: Connection,
    role: Role,
    schedule: &Schedule,
    input: &'static [u8; 16],
) -> Result<Party, Failure> {
    let failed = |error| failed(&error);
    let settings = Settings::default();
    let limited = connection.set_timeout(Some(settings.timeout));
    limited.map_err(|error| Failure::Failed(format!("the connection: {error}")))?;
    let (reader, writer) = connection.split();
    let copy = Arc::new(Mutex::new(Vec::new()));
    let reader = Recording { reader, copy: copy.clone() };
    let mut session = Session::over(reader, writer, role, settings).map_err(failed)?;
    let output = session.run(schedule, input).map_err(failed)?;
    let figures = session.figures();
    session.finish().map_err(failed)?;
    let received = std::mem::take(&mut *copy.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Party { role, input, output, figures, received })
}

impl Party {
    fn has_received(&self, other: &[u8; 16]) -> bool {
        self.received.windows(other.len()).any(|window| window == other)
    }

    fn noise(&self) -> Verdict {
        let mut histogram = Histogram::new();
        histogram.add(&self.received);
        verdict(histogram.chi_squared())
    }

    fn document(&self, other: &Self) -> PartyDocument {
        let phases = phases().map(|(at, phase)| (phase, &self.figures[at]));
        PartyDocument {
            role: self.role.to_string(),
            input: hex_of(self.input),
            output: self.output.as_deref().map(hex_of),
            received_bytes: self.received.len(),
            received_is_noise: match self.noise() {
                Verdict::Noise => Some(true),
                Verdict::NotNoise => Some(false),
                Verdict::TooShort => None,
            },
            received_has_other_input: self.has_received(other.input),
            phases: phases.map(|(phase, it)| PhaseDocument::new(phase, it)).collect(),
        }
    }

    /// What it has received, for a person.
    fn findings(&self, other: &Self) -> String {
        let noise = match self.noise() {
            Verdict::Noise => "noise",
            Verdict::NotNoise => "not noise",
            Verdict::TooShort => "too few to tell from noise",
        };
        let found = if self.has_received(other.input) { "is" } else { "is not" };
        let bytes = HumanCount(self.received.len() as u64);
        format!(
            "  the {} has received {bytes} bytes: {noise};\n    the {}'s input {found} among them\n",
            self.role, other.role
        )
    }
}

/// The phases of Yao's protocol, with their places among all.
fn phases() -> impl Iterator<Item = (usize, Phase)> {
    let all = Phase::ALL.into_iter().enumerate();
    all.filter(|(_, phase)| phase.is_of(Protocol::Yao))
}

fn is_right(parties: &[Party; 2]) -> bool {
    parties.iter().all(|party| party.output.as_deref() == Some(&ENCRYPTED[..]))
}

fn print_json(parties: &[Party; 2]) -> Result<(), Failure> {
    let [garbler, evaluator] = parties;
    console::print_json(&Document {
        circuit: "aes128",
        scheme: Settings::default().scheme.name(),
        transport: "tcp",
        expected: hex_of(&ENCRYPTED),
        is_right: is_right(parties),
        parties: [garbler.document(evaluator), evaluator.document(garbler)],
    })
}

fn print(parties: &[Party; 2]) -> Result<(), Failure> {
    let [garbler, evaluator] = parties;
    let row = |party: &Party, name: &str| {
        let output = party.output.as_deref().map_or_else(String::new, hex_of);
        [party.role.to_string(), format!("{name} {}", hex_of(party.input)), output]
    };
    let inputs = [
        ["party", "has", "learns"].map(str::to_owned),
        row(garbler, "key"),
        row(evaluator, "block"),
    ];
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let phase = |(at, phase): (usize, Phase)| {
        let [one, two] = [&garbler.figures[at], &evaluator.figures[at]];
        let sent = [one, two].map(|it| HumanCount(it.bytes_sent).to_string());
        let [from_garbler, from_evaluator] = sent;
        [phase.name().to_owned(), ms(one.time.max(two.time)), from_garbler, from_evaluator]
    };
    let header = ["phase", "time", "bytes of the garbler", "of the evaluator"].map(str::to_owned);
    let phases: Vec<_> = [header].into_iter().chain(phases().map(phase)).collect();
    let sides = [Side::Left, Side::Right, Side::Right, Side::Right];
    let verdict = if is_right(parties) { "the same" } else { "ANOTHER" };
    let text = format!(
        "AES-128 of a key and a block of two parties, by Yao's protocol over TCP, in this process\n\
         (semi-honest security: it holds if both parties run this program unchanged)\n\n\
         {}\n\
         FIPS 197, appendix B, has {}: {verdict}\n\n\
         {}\n\
         {}{}",
        aligned(&[Side::Left; 3], &inputs),
        hex_of(&ENCRYPTED),
        aligned(&sides, &phases),
        garbler.findings(evaluator),
        evaluator.findings(garbler),
    );
    console::print(text.trim_end().as_bytes())
}

/// Checks that everything is as promised.
fn check(parties: &[Party; 2]) -> Result<(), Failure> {
    let [garbler, evaluator] = parties;
    let wrong = if !is_right(parties) {
        "the output is not that of FIPS 197"
    } else if garbler.has_received(evaluator.input) || evaluator.has_received(garbler.input) {
        "a party has received the other's input"
    } else if parties.iter().any(|party| party.noise() == Verdict::NotNoise) {
        "what a party has received is not noise"
    } else {
        return Ok(());
    };
    Err(Failure::Failed(format!("{wrong}; please report this with the whole output")))
}
