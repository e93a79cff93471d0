//! `sunder demo compute`: AES-128 of a key and a block that two parties do not show each other.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base16ct::lower::encode_string;
use circuit::{CircuitSchedule, generate};
use compute::{
    ComputePhase, ComputeProtocol, ComputeRole, ComputeSession, ComputeSettings, PhaseDocument,
    PhaseFigures,
};
use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use indicatif::HumanCount;
use serde::Serialize;
use transport::{
    Connection, ConnectionOptions, ConnectionReader, ConnectionSecurity, Listener, TransportChoice,
    connect, random_identity,
};

use super::histogram::{ByteHistogram, NoiseVerdict, verdict};

/// The example of FIPS 197, appendix B: the garbler's key, the evaluator's block, the output.
const KEY: [u8; 16] = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
const BLOCK: [u8; 16] = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
const ENCRYPTED: [u8; 16] = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();

/// What a party had, learnt and received.
struct DemoParty {
    role: ComputeRole,
    input: &'static [u8; 16],
    output: Option<Vec<u8>>,
    figures: [PhaseFigures; ComputePhase::ALL.len()],
    /// All that it has received, decrypted.
    received: Vec<u8>,
}

/// Reads from a connection, and keeps a copy.
struct RecordingReader {
    reader: ConnectionReader,
    copy: Arc<Mutex<Vec<u8>>>,
}

impl Read for RecordingReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(to)?;
        self.copy.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&to[..count]);
        Ok(count)
    }
}

#[derive(Serialize)]
struct DemoComputeDocument {
    circuit: &'static str,
    scheme: &'static str,
    transport: &'static str,
    expected: String,
    is_right: bool,
    parties: [DemoPartyDocument; 2],
}

#[derive(Serialize)]
struct DemoPartyDocument {
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
pub(super) fn run(json: bool) -> Result<(), CommandFailure> {
    let parties = compute_aes()?;
    if json { print_json(&parties) } else { print(&parties) }?;
    check(&parties)
}

/// Both parties, each in a thread, over TCP.
fn compute_aes() -> Result<[DemoParty; 2], CommandFailure> {
    let no_connection = |error: transport::Error| CommandFailure::Failed(error.to_string());
    let schedule = CircuitSchedule::new(&generate::aes128());
    let security = ConnectionSecurity::open(random_identity().map_err(no_connection)?);
    let key = security.public_key();
    let bound = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security));
    let listener = bound.map_err(no_connection)?;
    let address = listener.local_addr().to_string();
    let same = schedule.clone();
    let evaluator = thread::spawn(move || {
        let connection = listener.accept().map_err(no_connection)?;
        party(connection, ComputeRole::Evaluator, &same, &BLOCK)
    });
    let own = random_identity().map_err(no_connection)?;
    let security = ConnectionSecurity::pinned(own, key.into_iter().collect());
    let options = ConnectionOptions {
        transport: TransportChoice::Named("tcp"),
        ..ConnectionOptions::new(security)
    };
    let connection = connect(&address, &options).map_err(no_connection)?;
    let garbler = party(connection, ComputeRole::Garbler, &schedule, &KEY)?;
    let failed = Err(CommandFailure::Failed("the evaluator has failed".into()));
    Ok([garbler, evaluator.join().unwrap_or(failed)?])
}

fn party(
    connection: Connection,
    role: ComputeRole,
    schedule: &CircuitSchedule,
    input: &'static [u8; 16],
) -> Result<DemoParty, CommandFailure> {
    let failed = |error: compute::Error| CommandFailure::Failed(error.to_string());
    let settings = ComputeSettings::default();
    let limited = connection.set_timeout(Some(settings.timeout));
    limited.map_err(|error| CommandFailure::Failed(format!("the connection: {error}")))?;
    let (reader, writer) = connection.split();
    let copy = Arc::new(Mutex::new(Vec::new()));
    let reader = RecordingReader { reader, copy: copy.clone() };
    let mut session = ComputeSession::over(reader, writer, role, settings).map_err(failed)?;
    let output = session.run(schedule, input).map_err(failed)?;
    let figures = session.figures();
    session.finish().map_err(failed)?;
    let received = std::mem::take(&mut *copy.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(DemoParty { role, input, output, figures, received })
}

impl DemoParty {
    fn has_received(&self, other: &[u8; 16]) -> bool {
        self.received.windows(other.len()).any(|window| window == other)
    }

    fn noise(&self) -> NoiseVerdict {
        let mut histogram = ByteHistogram::new();
        histogram.add(&self.received);
        verdict(histogram.chi_squared())
    }

    fn document(&self, other: &Self) -> DemoPartyDocument {
        let phases = phases().map(|(at, phase)| (phase, &self.figures[at]));
        DemoPartyDocument {
            role: self.role.to_string(),
            input: encode_string(self.input),
            output: self.output.as_deref().map(encode_string),
            received_bytes: self.received.len(),
            received_is_noise: match self.noise() {
                NoiseVerdict::Noise => Some(true),
                NoiseVerdict::NotNoise => Some(false),
                NoiseVerdict::TooShort => None,
            },
            received_has_other_input: self.has_received(other.input),
            phases: phases.map(|(phase, it)| PhaseDocument::new(phase, it)).collect(),
        }
    }

    /// What it has received, for a person.
    fn findings(&self, other: &Self) -> String {
        let noise = match self.noise() {
            NoiseVerdict::Noise => "noise",
            NoiseVerdict::NotNoise => "not noise",
            NoiseVerdict::TooShort => "too few to tell from noise",
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
fn phases() -> impl Iterator<Item = (usize, ComputePhase)> {
    let all = ComputePhase::ALL.into_iter().enumerate();
    all.filter(|(_, phase)| phase.is_of(ComputeProtocol::Yao))
}

fn is_right(parties: &[DemoParty; 2]) -> bool {
    parties.iter().all(|party| party.output.as_deref() == Some(&ENCRYPTED[..]))
}

fn print_json(parties: &[DemoParty; 2]) -> Result<(), CommandFailure> {
    let [garbler, evaluator] = parties;
    console::print_json(&DemoComputeDocument {
        circuit: "aes128",
        scheme: ComputeSettings::default().scheme.name(),
        transport: "tcp",
        expected: encode_string(&ENCRYPTED),
        is_right: is_right(parties),
        parties: [garbler.document(evaluator), evaluator.document(garbler)],
    })
}

fn print(parties: &[DemoParty; 2]) -> Result<(), CommandFailure> {
    let [garbler, evaluator] = parties;
    let row = |party: &DemoParty, name: &str| {
        let output = party.output.as_deref().map_or_else(String::new, encode_string);
        [party.role.to_string(), format!("{name} {}", encode_string(party.input)), output]
    };
    let inputs = [
        ["party", "has", "learns"].map(str::to_owned),
        row(garbler, "key"),
        row(evaluator, "block"),
    ];
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let phase = |(at, phase): (usize, ComputePhase)| {
        let [one, two] = [&garbler.figures[at], &evaluator.figures[at]];
        let sent = [one, two].map(|it| HumanCount(it.bytes_sent).to_string());
        let [from_garbler, from_evaluator] = sent;
        [phase.name().to_owned(), ms(one.time.max(two.time)), from_garbler, from_evaluator]
    };
    let header = ["phase", "time", "bytes of the garbler", "of the evaluator"].map(str::to_owned);
    let phases: Vec<_> = [header].into_iter().chain(phases().map(phase)).collect();
    let sides = [
        ColumnAlignment::Left,
        ColumnAlignment::Right,
        ColumnAlignment::Right,
        ColumnAlignment::Right,
    ];
    let verdict = if is_right(parties) { "the same" } else { "ANOTHER" };
    let text = format!(
        "AES-128 of a key and a block of two parties, by Yao's protocol over TCP, in this process\n\
         (secure against any evaluator; the garbler must run this program unchanged)\n\n\
         {}\n\
         FIPS 197, appendix B, has {}: {verdict}\n\n\
         {}\n\
         {}{}",
        aligned(&[ColumnAlignment::Left; 3], &inputs),
        encode_string(&ENCRYPTED),
        aligned(&sides, &phases),
        garbler.findings(evaluator),
        evaluator.findings(garbler),
    );
    console::print(text.trim_end().as_bytes())
}

/// Checks that everything is as promised.
fn check(parties: &[DemoParty; 2]) -> Result<(), CommandFailure> {
    let [garbler, evaluator] = parties;
    let wrong = if !is_right(parties) {
        "the output is not that of FIPS 197"
    } else if garbler.has_received(evaluator.input) || evaluator.has_received(garbler.input) {
        "a party has received the other's input"
    } else if parties.iter().any(|party| party.noise() == NoiseVerdict::NotNoise) {
        "what a party has received is not noise"
    } else {
        return Ok(());
    };
    Err(CommandFailure::Failed(format!("{wrong}; please report this with the whole output")))
}
