//! A model of the handover, all of whose states are checked.
//!
//! The model is written from `docs/protocols/quorum-ed25519.md`, with groups of four servers, of
//! which the last one is faulty. It is abstract: a row, a proof or a ciphertext is right or wrong.
//! `conformance` compares its agreed state with the one of this crate.
//!
//! What is left out, because it adds no state in which a property could be false:
//!
//! - A server that lags behind the log. Its step depends only on the part of the log that it has
//!   seen, so it can be taken when this was the whole log, and its entry is committed later.
//! - The time between saving, sending and committing. More is on disk in between. Entries that get
//!   lost are sent again.
//! - A Hold of several dealings, which is the same as a Hold of each in their order.
//! - Rows and entries of dealings that are not chosen, when the choice is complete.
//! - A wrong ciphertext that nobody has tried to decrypt. It is decided at that time.
//! - The numbers of correct servers. States that differ only in these are one.

mod agreement;
mod conformance;
mod properties;
mod rules;
mod state;

use std::collections::BTreeSet;

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use agreement::{ModelledEntry, ServerMask};
use rules::{HandoverRules, OldRowsWiped};
use state::{HandoverStep, ModelledHandover};

struct HandoverModel {
    rules: HandoverRules,
    /// Whether all receivers have registered in the first state.
    begins_registered: bool,
}

const ACCUSES: &str = "no correct server is accused";
const ONE_KEY: &str = "all have shares of the same key, the old one";
const LOSES: &str = "the key can be recovered from the disks";
const SECRET: &str = "the adversary does not know the key";
const ENDS: &str = "correct servers go on until all have shares";

impl Model for HandoverModel {
    type State = ModelledHandover;
    type Action = HandoverStep;

    fn init_states(&self) -> Vec<ModelledHandover> {
        let mut state = ModelledHandover::new(&self.rules);
        if self.begins_registered {
            let correct = ServerMask::CORRECT.iter();
            let steps = correct.map(|receiver| HandoverStep::Register { receiver });
            let faulty = HandoverStep::Faulty(ModelledEntry::Key { is_proven: true });
            for step in steps.chain([faulty]) {
                state = state.after(&self.rules, step);
            }
        }
        vec![state]
    }

    fn actions(&self, state: &ModelledHandover, steps: &mut Vec<HandoverStep>) {
        state.steps(&self.rules, steps);
    }

    fn next_state(&self, state: &ModelledHandover, step: HandoverStep) -> Option<ModelledHandover> {
        let next = state.after(&self.rules, step);
        (next != *state).then(|| next.representative())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ACCUSES, |_, it: &ModelledHandover| it.accuses_only_faulty_servers()),
            Property::always(ONE_KEY, |_, it: &ModelledHandover| it.has_one_key()),
            Property::always(LOSES, |Self { rules, .. }, it: &ModelledHandover| {
                it.loses_nothing(rules)
            }),
            Property::always(SECRET, |Self { rules, .. }, it: &ModelledHandover| {
                it.is_secret(rules)
            }),
            Property::always(ENDS, |Self { rules, .. }, it: &ModelledHandover| it.goes_on(rules)),
        ]
    }
}

/// Runs the model through its states, until one of the properties is false. Returns the number of
/// states, and what is false.
fn check(model: HandoverModel, until: HasDiscoveries) -> (usize, BTreeSet<&'static str>) {
    let checker = model.checker().threads(2).finish_when(until).spawn_bfs().join();
    let found = checker.discoveries();
    for (name, path) in &found {
        println!("not true: {name}: {:?}", path.clone().into_actions());
    }
    (checker.unique_state_count(), found.into_keys().collect())
}

/// The model with these rules has all properties in each state.
fn holds(rules: HandoverRules) {
    let model = HandoverModel { rules, begins_registered: false };
    let (states, found) = check(model, HasDiscoveries::AnyFailures);
    println!("{states} states");
    assert!(states > 100_000, "the model has more states");
    assert!(found.is_empty(), "{found:?}");
}

/// With these rules the property is false in a state.
fn finds(property: &'static str, rules: HandoverRules) {
    finds_from(property, HandoverModel { rules, begins_registered: false });
}

/// Like `finds`, with a fault that can happen after all have registered. The model has fewer states
/// then.
fn finds_after_registration(property: &'static str, rules: HandoverRules) {
    finds_from(property, HandoverModel { rules, begins_registered: true });
}

fn finds_from(property: &'static str, model: HandoverModel) {
    let (_, found) = check(model, HasDiscoveries::AnyOf([property].into()));
    assert!(found.contains(property), "{found:?}");
}

fn rules() -> HandoverRules {
    HandoverRules::default()
}

#[test]
fn a_resharing_has_all_properties_in_every_state() {
    holds(rules());
}

#[test]
fn a_key_generation_has_all_properties_in_every_state() {
    holds(HandoverRules { is_key_generation: true, ..rules() });
}

/// The model without these rules has all properties, because others suffice.
#[test]
#[ignore = "takes minutes: make soak"]
fn a_resharing_has_all_properties_without_some_rules() {
    // A dealing to few is not held by 2f'+1, and only faulty dealers deal to few.
    holds(HandoverRules { receivers_of_a_dealing: 1, ..rules() });
    // Of 2f'+1 confirmations, f'+1 are of correct servers.
    holds(HandoverRules { proves_possession: false, ..rules() });
    // f'+1 correct servers have each chosen row on disk.
    for old_rows_wiped in [OldRowsWiped::AtChoice, OldRowsWiped::AtFirstConfirm] {
        holds(HandoverRules { old_rows_wiped, ..rules() });
    }
}

#[test]
fn the_model_does_not_end_if_fewer_servers_hold_or_get_rows() {
    finds(ENDS, HandoverRules { holders: 2, ..rules() });
    let (registered_before_dealing, receivers_of_a_dealing) = (2, 2);
    finds(ENDS, HandoverRules { registered_before_dealing, receivers_of_a_dealing, ..rules() });
}

#[test]
fn the_model_does_not_end_without_help_for_rows() {
    finds(ENDS, HandoverRules { repairs_rows: false, ..rules() });
}

#[test]
fn the_model_does_not_end_without_help_after_final() {
    finds_after_registration(ENDS, HandoverRules { repairs_shares: false, ..rules() });
}

#[test]
fn the_model_does_not_end_if_seeds_are_saved_late() {
    finds(ENDS, HandoverRules { saves_seeds_first: false, ..rules() });
}

#[test]
fn the_model_does_not_end_if_rows_are_saved_late() {
    finds_after_registration(ENDS, HandoverRules { saves_rows_first: false, ..rules() });
}

#[test]
fn the_model_loses_the_key_if_fewer_confirm_or_shares_are_saved_late() {
    finds_after_registration(LOSES, HandoverRules { confirmations: 2, ..rules() });
    finds_after_registration(LOSES, HandoverRules { saves_shares_first: false, ..rules() });
}

#[test]
fn the_model_has_two_keys_without_comparisons_or_if_the_choice_changes() {
    finds(ONE_KEY, HandoverRules { compares_secrets: false, ..rules() });
    finds(ONE_KEY, HandoverRules { checks_rows: false, ..rules() });
    finds(ONE_KEY, HandoverRules { keeps_the_choice: false, ..rules() });
}

#[test]
fn the_model_accuses_correct_servers_if_complaints_are_not_checked() {
    finds(ACCUSES, HandoverRules { checks_complaints: false, ..rules() });
}

#[test]
fn the_model_reveals_the_key_without_proofs_of_ephemeral_keys_or_wiping() {
    finds_after_registration(SECRET, HandoverRules { proves_ephemeral_keys: false, ..rules() });
    finds_after_registration(SECRET, HandoverRules { wipes_receivers: false, ..rules() });
    finds_after_registration(SECRET, HandoverRules { wipes_dealers: false, ..rules() });
    let old_rows_wiped = OldRowsWiped::Never;
    finds_after_registration(SECRET, HandoverRules { old_rows_wiped, ..rules() });
}
