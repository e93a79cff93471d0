//! Measures the computations of a signature (tables 5.1 to 5.4 of the thesis).

use std::collections::BTreeMap;
use std::time::Duration;

use keys::rsa::RsaEncoding;
use quorum::ServerIndex;
use quorum::in_process::{SignReport, SigningServers, measured};
use quorum::signing::{PartialSignQuery, QuickSigners, SignerHealth};
use random::RandomGenerator;
use serde::Deserialize;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use super::{QuorumGroupOptions, key};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "quorum-sign",
    values: &[
        "usual",
        "usual_99",
        "one_silent",
        "f_silent",
        "full_replier",
        "requester_bytes",
        "requester_bytes_full",
        "replier_bytes",
        "replier_bytes_full",
    ],
    hosts: &[],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuorumSignOptions {
    /// The number of servers, 3f+1.
    servers: u8,
    /// The number of bits of the modulus.
    modulus_bits: u32,
    /// Whether shares are as long as the thesis's.
    paper_range: bool,
    /// The number of measured signatures.
    signatures: usize,
}

/// The signed message, of 160 bits as in the thesis.
const MESSAGE: &[u8; 20] = b"a message, 160 bits.";

/// The maximum number of signatures.
const MAX_SIGNATURES: usize = 10_000;

impl QuorumSignOptions {
    fn group(self) -> QuorumGroupOptions {
        let Self { servers, modulus_bits, paper_range, .. } = self;
        QuorumGroupOptions { servers, modulus_bits, paper_range }
    }
}

fn check(table: &toml::Table) -> Result<(), String> {
    let options: QuorumSignOptions = options(table)?;
    let signatures = options.signatures;
    if !(1..=MAX_SIGNATURES).contains(&signatures) {
        return Err(format!("signatures is {signatures}; give 1 to {MAX_SIGNATURES}"));
    }
    options.group().check()
}

fn measure(_: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: QuorumSignOptions = options(table)?;
    let (options, signatures) = (options.group(), options.signatures);
    let mut generator = RandomGenerator::seeded().map_err(|error| error.to_string())?;
    let key = key(options.modulus_bits)?;
    let (setting, combination) = (options.setting(&key), options.combination()?);
    let group = setting.deal(&key, &combination, &mut generator);
    let servers = group.map_err(|error| error.to_string())?.signing_servers(&setting);
    let mut health = SignerHealth::new(&combination);
    let usual = (0..signatures).map(|_| sign(&servers, &mut health, &[]));
    let usual = usual.collect::<Result<Vec<_>, _>>()?;
    // The silent servers are those that the requester chooses first.
    let with_silent = |count: usize| {
        let signed = (0..signatures).map(|_| {
            let silent: Vec<ServerIndex> =
                health.ranking(Duration::ZERO).into_iter().take(count).collect();
            sign(&servers, &mut health.clone(), &silent)
        });
        signed.collect::<Result<Vec<_>, _>>()
    };
    let (one_silent, f_silent) = (with_silent(1)?, with_silent(combination.faulty())?);
    let first = ServerIndex(0);
    let (full, repliers) = (query(&servers, None), combination.server_count());
    let (answer, full_replier) = measured(|| servers.answer(first, &full));
    let answer = answer.map_err(|error| error.to_string())?;
    let signers = combination.servers().take(combination.signer_count());
    let quick = query(&servers, QuickSigners::new(&combination, signers));
    let requester_bytes = quick.to_bytes().len() * combination.signer_count();
    let replier_bytes = usual[0].answers.bytes / usual[0].answers.count;
    Ok(DriverValues::Named(BTreeMap::from([
        ("usual", percentile(&usual, 50)),
        ("usual_99", percentile(&usual, 99)),
        ("one_silent", percentile(&one_silent, 50)),
        ("f_silent", percentile(&f_silent, 50)),
        ("full_replier", full_replier.as_secs_f64() * 1e3),
        ("requester_bytes", requester_bytes as f64),
        ("requester_bytes_full", (full.to_bytes().len() * repliers) as f64),
        ("replier_bytes", replier_bytes as f64),
        ("replier_bytes_full", answer.len() as f64),
    ])))
}

fn query(servers: &SigningServers, signers: Option<QuickSigners>) -> PartialSignQuery {
    let (epoch, message) = (servers.group().epoch, MESSAGE.to_vec());
    PartialSignQuery { epoch, signers, encoding: RsaEncoding::Pkcs1, message: message.into() }
}

fn sign(
    servers: &SigningServers,
    health: &mut SignerHealth,
    silent: &[ServerIndex],
) -> Result<SignReport, String> {
    let signed = servers.sign(MESSAGE, RsaEncoding::Pkcs1, health, silent);
    let signed = signed.map_err(|error| error.to_string())?;
    if signed.signature.is_none() { Err(String::from("there is no signature")) } else { Ok(signed) }
}

/// A percentile of the times to a signature, in ms.
fn percentile(signed: &[SignReport], percent: usize) -> f64 {
    let mut times: Vec<Duration> = signed.iter().map(|signed| signed.took).collect();
    times.sort();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3
}
