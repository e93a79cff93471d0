//! `sunder demo chat`: a proxy and three members on loopback, and what the proxy could tell.

mod distinguisher;
mod report;
mod stage;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use console::CommandFailure;
use console::CommandProgress;
use keys::IdentityPublicKey;
use mix::proxy::MixProxyObservation;

use super::scratch;
use distinguisher::ObservedUpdates;
use report::DemoChatReport;
use stage::DemoChatGroup;

/// How many rounds are recorded of each thing that alice does.
const RECORDED: usize = 40;

/// After this many rounds the member surely does what it was asked for.
const SETTLED: usize = 4;

/// The longest that a step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// The messages: by whom, to whom, and what.
const SCRIPT: [(usize, usize, &str); 5] = [
    (0, 1, "Meet at the bridge at eight."),
    (1, 0, "I will be there."),
    (2, 0, "Is the ship in yet?"),
    (0, 2, "Tomorrow, with the tide."),
    (1, 2, "Bring the lamp."),
];

/// The members, of which the first is the administrator.
const NAMES: [&str; 3] = ["alice", "bob", "carol"];

/// What alice does while the proxy records.
const ALICE_ACTIONS: [(&str, Option<usize>); 3] =
    [("wrote to bob", Some(1)), ("wrote to carol", Some(2)), ("wrote nothing", None)];

/// A line of the script, and how long it took from being entered to being acknowledged.
struct ScriptLineResult {
    from: &'static str,
    to: &'static str,
    text: &'static str,
    is_right: bool,
    took: Duration,
}

/// Runs the demonstration.
///
/// # Errors
/// If a line does not arrive, or the proxy can tell what alice did.
pub(super) fn run(json: bool) -> Result<(), CommandFailure> {
    let start = Instant::now();
    let progress = CommandProgress::unknown();
    progress.doing("starting a proxy and three members");
    let place = tempfile::tempdir().map_err(|error| scratch::writing(&error))?;
    let mut stage = DemoChatGroup::start(place.path(), &NAMES)?;
    let members = start.elapsed();
    progress.doing("talking");
    let lines = SCRIPT.iter().map(|line| say(&mut stage, line)).collect::<Result<_, _>>()?;
    let mut deeds = Vec::new();
    for (deed, to) in ALICE_ACTIONS {
        progress.doing(format!("recording what the proxy has while alice {deed}"));
        deeds.push((deed, record(&mut stage, to)?));
    }
    drop(progress);
    let report = DemoChatReport {
        terms: stage.terms(),
        members,
        lines,
        actions: deeds,
        took: start.elapsed(),
    };
    drop(stage);
    if json { report.print_json() } else { report.print() }?;
    report.check()
}

/// Has a line sent, and waits until it has arrived and its sender knows.
fn say(
    stage: &mut DemoChatGroup,
    line: &(usize, usize, &'static str),
) -> Result<ScriptLineResult, CommandFailure> {
    let (from, to, text) = *line;
    let start = Instant::now();
    stage.say(from, to, text);
    let arrived = stage.wait_for_message(to)?;
    stage.wait_until_delivered(from)?;
    let is_right = arrived == (NAMES[from].to_owned(), text.to_owned());
    Ok(ScriptLineResult { from: NAMES[from], to: NAMES[to], text, is_right, took: start.elapsed() })
}

/// Records what the proxy has of alice, while it writes to a member in each round, or nothing.
fn record(stage: &mut DemoChatGroup, to: Option<usize>) -> Result<ObservedUpdates, CommandFailure> {
    if let Some(to) = to {
        // One in each round; as many as are recorded, and some before and behind.
        (0..RECORDED + 4 * SETTLED).for_each(|at| stage.say(0, to, &format!("line {at}")));
    }
    let alice = stage.key(0);
    stage.wait_for_updates(&alice, SETTLED)?;
    let seen = stage.wait_for_updates(&alice, RECORDED)?;
    stage.wait_until_delivered(0)?;
    stage.wait_for_updates(&alice, SETTLED)?;
    Ok(updates_of(&alice, seen))
}

/// What the proxy has of a member.
fn updates_of(
    key: &IdentityPublicKey,
    seen: Vec<(IdentityPublicKey, Instant, MixProxyObservation)>,
) -> ObservedUpdates {
    let mut updates = ObservedUpdates::default();
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, at, seen) in seen.into_iter().filter(|(of, ..)| of == key) {
        match seen {
            MixProxyObservation::Message { len } => {
                *lengths.entry(len).or_default() += 1;
                updates.times.push(at);
            }
            MixProxyObservation::Update(update) => updates.updates.push(update),
        }
    }
    updates.lengths = lengths.into_keys().collect();
    updates
}
