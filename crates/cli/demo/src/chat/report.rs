//! The report of the demonstration, as text or JSON.

use std::time::Duration;

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use indicatif::HumanCount;
use mix::wire::MixTerms;
use serde::Serialize;

use super::distinguisher::{LEAST_P, ObservedUpdates, difference_p};
use super::{NAMES, ScriptLineResult};

/// The contents of the report.
pub(super) struct DemoChatReport {
    pub(super) terms: MixTerms,
    /// How long it took until all members took part.
    pub(super) members: Duration,
    pub(super) lines: Vec<ScriptLineResult>,
    /// What alice did, and what the proxy had of it.
    pub(super) actions: Vec<(&'static str, ObservedUpdates)>,
    pub(super) took: Duration,
}

#[derive(Serialize)]
struct DemoChatDocument {
    engine: &'static str,
    /// The slots of each member.
    slots: usize,
    slot_bytes: usize,
    /// Until all members took part.
    members_ms: f64,
    seconds: f64,
    #[serde(rename = "said")]
    lines: Vec<ScriptLineDocument>,
    /// What the proxy had while alice did each of these.
    seen: Vec<ObservedUpdatesDocument>,
    /// The probability that the bytes of these are as different by chance.
    difference_p: f64,
    /// Whether all messages have one length, and no test finds a difference.
    is_unlinkable: bool,
}

#[derive(Serialize)]
struct ScriptLineDocument {
    from: &'static str,
    to: &'static str,
    text: &'static str,
    arrived: bool,
    ms: f64,
}

#[derive(Serialize)]
struct ObservedUpdatesDocument {
    alice: &'static str,
    updates: usize,
    bytes: usize,
    message_lengths: Vec<usize>,
    interval_ms: f64,
    bytes_p: f64,
    places_p: f64,
}

impl DemoChatReport {
    /// Prints the report as text.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print(&self) -> Result<(), CommandFailure> {
        let text = format!(
            "{}\n{}\n{}\n{}",
            self.summary(),
            self.conversation(),
            self.table(),
            self.conclusion()
        );
        console::print(text.trim_end().as_bytes())
    }

    /// Prints the report as JSON.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print_json(&self) -> Result<(), CommandFailure> {
        let shape = self.terms.shape();
        console::print_json(&DemoChatDocument {
            engine: self.terms.exchange().as_str(),
            slots: shape.slots_per_member(),
            slot_bytes: shape.slot_len(),
            members_ms: ms(self.members),
            seconds: self.took.as_secs_f64(),
            lines: self.lines.iter().map(line_document).collect(),
            seen: self
                .actions
                .iter()
                .map(|(alice, updates)| updates_document(alice, updates))
                .collect(),
            difference_p: self.difference_p(),
            is_unlinkable: self.is_unlinkable(),
        })
    }

    /// Checks that everything is as promised.
    ///
    /// # Errors
    /// If something is not.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        let wrong = if !self.lines.iter().all(|line| line.is_right) {
            "a line has not arrived as it was said"
        } else if !self.is_unlinkable() {
            "the proxy can tell what alice did"
        } else {
            return Ok(());
        };
        Err(CommandFailure::Failed(format!("{wrong}; please report this with the whole output")))
    }

    fn difference_p(&self) -> f64 {
        let all: Vec<&ObservedUpdates> = self.actions.iter().map(|(_, updates)| updates).collect();
        difference_p(&all)
    }

    fn is_unlinkable(&self) -> bool {
        let is_noise = |updates: &ObservedUpdates| {
            updates.bytes_p() > LEAST_P
                && updates.places_p() > LEAST_P
                && updates.lengths.len() == 1
                && updates.lengths == self.actions[0].1.lengths
        };
        self.actions.iter().all(|(_, updates)| is_noise(updates)) && self.difference_p() > LEAST_P
    }

    fn summary(&self) -> String {
        let shape = self.terms.shape();
        format!(
            "{} talk through a proxy on this machine, by {}: each sends {} bytes in\n\
             each round, and gets those of all. Only the receiver of a message can read it.\n",
            NAMES.join(", "),
            self.terms.exchange().as_str(),
            shape.own_slots_len(),
        )
    }

    fn conversation(&self) -> String {
        let head = ["from", "to", "text", "arrived", "acknowledged"].map(str::to_owned);
        let row = |line: &ScriptLineResult| {
            let arrived = if line.is_right { "yes" } else { "NO" };
            let took = format!("{:.0} ms", ms(line.took));
            let [from, to, text] = [line.from, line.to, line.text].map(str::to_owned);
            [from, to, text, arrived.to_owned(), took]
        };
        let rows: Vec<_> = [head].into_iter().chain(self.lines.iter().map(row)).collect();
        let sides = [
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Right,
        ];
        aligned(&sides, &rows)
    }

    fn table(&self) -> String {
        let head = ["alice", "rounds", "bytes", "a message", "every", "p of bytes", "p of places"];
        let row = |deed: &(&'static str, ObservedUpdates)| {
            let (alice, updates) = deed;
            let seen = updates_document(alice, updates);
            let lengths: Vec<String> = seen
                .message_lengths
                .iter()
                .map(|len| HumanCount(*len as u64).to_string())
                .collect();
            [
                (*alice).to_owned(),
                seen.updates.to_string(),
                HumanCount(seen.bytes as u64).to_string(),
                lengths.join(", "),
                format!("{:.0} ms", seen.interval_ms),
                format!("{:.3}", seen.bytes_p),
                format!("{:.3}", seen.places_p),
            ]
        };
        let rows: Vec<_> =
            [head.map(str::to_owned)].into_iter().chain(self.actions.iter().map(row)).collect();
        let mut sides = [ColumnAlignment::Right; 7];
        sides[0] = ColumnAlignment::Left;
        format!("What the proxy has of alice\n\n{}", aligned(&sides, &rows))
    }

    fn conclusion(&self) -> String {
        let verdict = if self.is_unlinkable() {
            "The proxy cannot tell these apart: messages have one length, and their bytes are \
             noise.\nWhatever the proxy does, it learns only about messages from and to members \
             that\ncooperate with it."
        } else {
            "THE PROXY CAN TELL THESE APART."
        };
        format!(
            "p            how often noise is as uneven (chi-squared); below {LEAST_P} it is not noise\n\
             p of places  of how many bits are set in each place of the member's slot\n\
             difference   p = {:.3} that the bytes of all three are as different by chance\n\n{verdict}",
            self.difference_p()
        )
    }
}

fn updates_document(alice: &'static str, updates: &ObservedUpdates) -> ObservedUpdatesDocument {
    ObservedUpdatesDocument {
        alice,
        updates: updates.updates.len(),
        bytes: updates.len(),
        message_lengths: updates.lengths.clone(),
        interval_ms: ms(updates.interval()),
        bytes_p: updates.bytes_p(),
        places_p: updates.places_p(),
    }
}

fn line_document(line: &ScriptLineResult) -> ScriptLineDocument {
    let ScriptLineResult { from, to, text, is_right, took } = line;
    ScriptLineDocument { from, to, text, arrived: *is_right, ms: ms(*took) }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
