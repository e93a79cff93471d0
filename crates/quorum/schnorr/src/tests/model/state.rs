//! The state of the modelled handover, and its steps.

use super::agreement::{
    DealingFlaw, FAULTY, ModelledAgreement, ModelledDealing, ModelledEntry, SERVERS, ServerMask,
};
use super::rules::{HandoverRules, OldRowsWiped};

/// What a correct receiver has, in memory or on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ReceiverStore {
    /// Its seed, which gives its session key. It has none yet, or has wiped it.
    pub(super) has_seed: bool,
    /// Its rows of dealings.
    pub(super) rows: ServerMask,
    /// The row of the faulty dealer does not fit the commitment.
    pub(super) has_wrong_row: bool,
    /// The dealers whose dealings make up its new row. Empty without one.
    pub(super) share_of: ServerMask,
    pub(super) has_wrong_share: bool,
}

impl ReceiverStore {
    pub(super) fn has_share(self) -> bool {
        !self.share_of.is_empty()
    }
}

/// A correct receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModelledReceiver {
    pub(super) memory: ReceiverStore,
    pub(super) disk: ReceiverStore,
    /// It has seen Final, and wiped what it wipes then.
    pub(super) is_done: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModelledHandover {
    pub(super) agreement: ModelledAgreement,
    /// The correct receivers.
    pub(super) receivers: [ModelledReceiver; 3],
    /// The correct dealers that have their old row on disk, that have a seed there, and that have
    /// seen Final and wiped what they wipe then.
    pub(super) old_rows: ServerMask,
    pub(super) dealer_seeds: ServerMask,
    pub(super) done_dealers: ServerMask,
    /// The correct receivers that found the ciphertext of the faulty dealer wrong, and those that
    /// have published K for it.
    pub(super) wronged: ServerMask,
    pub(super) complained: ServerMask,
}

/// A step. Each "saves" what the page says before an entry is committed. The time between is left
/// out, because more is on disk then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandoverStep {
    Register {
        receiver: u8,
    },
    Deal {
        dealer: u8,
        receivers: ServerMask,
    },
    /// A receiver has decrypted its row, and holds it.
    Decrypt {
        receiver: u8,
        dealer: u8,
    },
    /// A receiver finds that the faulty dealer's ciphertext for it is wrong.
    FindWrong {
        receiver: u8,
    },
    Complain {
        receiver: u8,
    },
    /// A receiver has obtained its row from others, with or without the faulty one, and holds it.
    Repair {
        receiver: u8,
        dealer: u8,
        by_faulty: bool,
    },
    Confirm {
        receiver: u8,
    },
    /// A receiver sees Final.
    Finish {
        receiver: u8,
    },
    RepairShare {
        receiver: u8,
        by_faulty: bool,
    },
    Save {
        receiver: u8,
    },
    /// A receiver has only what is on its disk.
    Restart {
        receiver: u8,
    },
    /// A server of the old group wipes its row before Final.
    WipeOldRow {
        dealer: u8,
    },
    /// A server of the old group sees Final.
    FinishDealer {
        dealer: u8,
    },
    Faulty(ModelledEntry),
}

impl HandoverStep {
    /// Whether a correct server takes the step at some time, whatever the faulty ones do.
    pub(super) fn is_certain(self) -> bool {
        !matches!(
            self,
            Self::Repair { by_faulty: true, .. }
                | Self::RepairShare { by_faulty: true, .. }
                | Self::Restart { .. }
                | Self::Faulty(_)
        )
    }
}

impl ModelledHandover {
    pub(super) fn new(rules: &HandoverRules) -> Self {
        let old_rows =
            if rules.is_key_generation { ServerMask::default() } else { ServerMask::CORRECT };
        Self { old_rows, ..Self::default() }
    }

    fn receiver(&self, receiver: u8) -> &ModelledReceiver {
        &self.receivers[usize::from(receiver)]
    }

    /// All steps that are possible.
    pub(super) fn steps(&self, rules: &HandoverRules, steps: &mut Vec<HandoverStep>) {
        for receiver in ServerMask::CORRECT.iter() {
            self.steps_of_receiver(rules, receiver, steps);
        }
        for dealer in ServerMask::CORRECT.iter() {
            self.steps_of_dealer(rules, dealer, steps);
        }
        if !self.agreement.is_final(rules) {
            self.steps_of_faulty(rules, steps);
        }
    }

    fn steps_of_receiver(
        &self,
        rules: &HandoverRules,
        receiver: u8,
        steps: &mut Vec<HandoverStep>,
    ) {
        let it = self.receiver(receiver);
        let agreement = &self.agreement;
        if it.memory != it.disk {
            steps.extend([HandoverStep::Save { receiver }, HandoverStep::Restart { receiver }]);
        }
        if it.is_done {
            if !it.memory.has_share() && rules.repairs_shares {
                self.repair_share(receiver, steps);
            }
            return;
        }
        if agreement.is_final(rules) {
            steps.push(HandoverStep::Finish { receiver });
        } else {
            if !agreement.registered.has(receiver) {
                steps.push(HandoverStep::Register { receiver });
            }
            if self.wronged.has(receiver) && !agreement.faulty_dealers.has(FAULTY) {
                steps.push(HandoverStep::Complain { receiver });
            }
            let has_rows = agreement.chosen.without(it.memory.rows).is_empty();
            let may_confirm = agreement.is_chosen && agreement.registered.has(receiver);
            if may_confirm && !agreement.confirmed.has(receiver) && has_rows {
                steps.push(HandoverStep::Confirm { receiver });
            }
        }
        for dealer in self.wanted_dealings().without(it.memory.rows).iter() {
            self.obtain_row(rules, receiver, dealer, steps);
        }
    }

    /// The dealings of which receivers want rows.
    fn wanted_dealings(&self) -> ServerMask {
        let agreement = &self.agreement;
        let dealt = (0..SERVERS).filter(|it| agreement.dealing(*it).is_some()).collect();
        if agreement.is_chosen {
            agreement.chosen
        } else {
            ServerMask::without(dealt, agreement.faulty_dealers)
        }
    }

    fn obtain_row(
        &self,
        rules: &HandoverRules,
        receiver: u8,
        dealer: u8,
        steps: &mut Vec<HandoverStep>,
    ) {
        let Some(dealing) = self.agreement.dealing(dealer) else { return };
        let is_wronged = dealer == FAULTY && self.wronged.has(receiver);
        let has_ciphertext = dealing.receivers.has(receiver) && !is_wronged;
        if has_ciphertext && self.receiver(receiver).memory.has_seed {
            steps.push(HandoverStep::Decrypt { receiver, dealer });
            if dealer == FAULTY {
                steps.push(HandoverStep::FindWrong { receiver });
            }
        }
        if !rules.repairs_rows || !self.agreement.registered.has(receiver) {
            return;
        }
        let is_helper = |it: &u8| self.receiver(*it).memory.rows.has(dealer) && *it != receiver;
        let helpers = dealing.holders.and(ServerMask::CORRECT).iter().filter(is_helper).count();
        let by_faulty = dealing.holders.has(FAULTY);
        match helpers {
            1 if by_faulty => steps.push(HandoverStep::Repair { receiver, dealer, by_faulty }),
            0 | 1 => {}
            _ => steps.push(HandoverStep::Repair { receiver, dealer, by_faulty: false }),
        }
    }

    fn repair_share(&self, receiver: u8, steps: &mut Vec<HandoverStep>) {
        let helpers = self.receivers.iter().filter(|it| it.memory.has_share()).count();
        match helpers {
            0 => {}
            1 => steps.push(HandoverStep::RepairShare { receiver, by_faulty: true }),
            _ => steps.push(HandoverStep::RepairShare { receiver, by_faulty: false }),
        }
    }

    fn steps_of_dealer(&self, rules: &HandoverRules, dealer: u8, steps: &mut Vec<HandoverStep>) {
        let agreement = &self.agreement;
        let may_deal = agreement.registered.len() >= rules.registered_before_dealing;
        if may_deal && !agreement.is_chosen && agreement.dealing(dealer).is_none() {
            let receivers = agreement.registered;
            steps.push(HandoverStep::Deal { dealer, receivers });
            // A dealing that the dealer submitted before the last one registered.
            if let Some(last) = agreement.last_registered.filter(|it| *it != FAULTY) {
                let mut receivers = receivers;
                receivers.remove(last);
                steps.push(HandoverStep::Deal { dealer, receivers });
            }
        }
        let may_wipe = match rules.old_rows_wiped {
            OldRowsWiped::AtChoice => agreement.is_chosen,
            OldRowsWiped::AtFirstConfirm => !agreement.confirmed.is_empty(),
            OldRowsWiped::AtFinal | OldRowsWiped::Never => false,
        };
        if may_wipe && self.old_rows.has(dealer) {
            steps.push(HandoverStep::WipeOldRow { dealer });
        }
        if agreement.is_final(rules) && !self.done_dealers.has(dealer) {
            steps.push(HandoverStep::FinishDealer { dealer });
        }
    }

    fn steps_of_faulty(&self, rules: &HandoverRules, steps: &mut Vec<HandoverStep>) {
        let agreement = &self.agreement;
        let mut entries = Vec::new();
        let may_deal = !agreement.is_chosen && !agreement.faulty_dealers.has(FAULTY);
        if may_deal && agreement.dealing(FAULTY).is_none() {
            // Whether the faulty receiver has a ciphertext does not matter.
            let correct = agreement.registered.and(ServerMask::CORRECT);
            let deals = correct.subsets().map(|without| agreement.registered.without(without));
            let deals = deals.filter(|it| it.len() >= rules.receivers_of_a_dealing);
            for receivers in deals {
                let flaws = [DealingFlaw::None, DealingFlaw::OtherSecret];
                let dealt =
                    ServerMask::CORRECT.iter().filter(|it| agreement.dealing(*it).is_some());
                let copied = dealt.map(DealingFlaw::CopiedKey);
                let flaws = flaws.into_iter().chain(copied);
                entries.extend(flaws.map(|flaw| ModelledEntry::Deal { receivers, flaw }));
            }
        }
        if !agreement.faulty_receivers.has(FAULTY) {
            for is_proven in [false, true] {
                entries.push(ModelledEntry::Key { is_proven });
                entries.push(ModelledEntry::Confirm { is_proven });
            }
            for dealer in 0..SERVERS {
                entries.push(ModelledEntry::Hold { dealer });
                for is_right in [false, true] {
                    // Only the faulty dealer's ciphertexts can be wrong.
                    if !is_right || dealer == FAULTY {
                        entries.push(ModelledEntry::Complain { dealer, is_right });
                    }
                }
            }
        }
        steps.extend(entries.into_iter().map(HandoverStep::Faulty));
    }

    /// The state after a step. The same state if the step changes nothing.
    pub(super) fn after(mut self, rules: &HandoverRules, step: HandoverStep) -> Self {
        match step {
            HandoverStep::Register { receiver } => {
                self.change(receiver, rules.saves_seeds_first, |it| it.has_seed = true);
                self.apply(rules, receiver, ModelledEntry::Key { is_proven: true });
            }
            HandoverStep::Deal { dealer, receivers } => {
                self.dealer_seeds.insert(dealer);
                let flaw = DealingFlaw::None;
                self.apply(rules, dealer, ModelledEntry::Deal { receivers, flaw });
            }
            HandoverStep::Decrypt { receiver, dealer } => {
                self.change(receiver, true, |it| it.rows.insert(dealer));
                self.apply(rules, receiver, ModelledEntry::Hold { dealer });
            }
            HandoverStep::Repair { receiver, dealer, .. } => {
                self.change(receiver, rules.saves_rows_first, |it| it.rows.insert(dealer));
                self.apply(rules, receiver, ModelledEntry::Hold { dealer });
            }
            HandoverStep::FindWrong { receiver } if !rules.checks_rows => {
                let dealer = FAULTY;
                self.change(receiver, true, |it| {
                    it.rows.insert(dealer);
                    it.has_wrong_row = true;
                });
                self.apply(rules, receiver, ModelledEntry::Hold { dealer });
            }
            HandoverStep::FindWrong { receiver } => self.wronged.insert(receiver),
            HandoverStep::Complain { receiver } => {
                self.complained.insert(receiver);
                let complaint = ModelledEntry::Complain { dealer: FAULTY, is_right: true };
                self.apply(rules, receiver, complaint);
            }
            HandoverStep::Confirm { receiver } => {
                self.compute_share(receiver, rules.saves_shares_first);
                self.apply(rules, receiver, ModelledEntry::Confirm { is_proven: true });
            }
            HandoverStep::Finish { receiver } => self.finish(rules, receiver),
            HandoverStep::RepairShare { receiver, .. } => {
                let chosen = self.agreement.chosen;
                self.change(receiver, true, |it| it.share_of = chosen);
            }
            HandoverStep::Save { receiver } => {
                let it = &mut self.receivers[usize::from(receiver)];
                it.disk = it.memory;
            }
            HandoverStep::Restart { receiver } => {
                let it = &mut self.receivers[usize::from(receiver)];
                it.memory = it.disk;
            }
            HandoverStep::WipeOldRow { dealer } => self.old_rows.remove(dealer),
            HandoverStep::FinishDealer { dealer } => {
                self.done_dealers.insert(dealer);
                if rules.old_rows_wiped != OldRowsWiped::Never {
                    self.old_rows.remove(dealer);
                }
                if rules.wipes_dealers {
                    self.dealer_seeds.remove(dealer);
                }
            }
            HandoverStep::Faulty(entry) => self.apply(rules, FAULTY, entry),
        }
        self
    }

    /// Changes the memory of a receiver, and the disk too if it is saved.
    fn change(&mut self, receiver: u8, is_saved: bool, change: impl Fn(&mut ReceiverStore)) {
        let it = &mut self.receivers[usize::from(receiver)];
        change(&mut it.memory);
        if is_saved {
            change(&mut it.disk);
        }
    }

    fn compute_share(&mut self, receiver: u8, is_saved: bool) {
        let chosen = self.agreement.chosen;
        self.change(receiver, is_saved, |it| {
            it.share_of = chosen;
            it.has_wrong_share = it.has_wrong_row && chosen.has(FAULTY);
        });
    }

    /// A receiver computes its share if it can, and wipes the rest.
    fn finish(&mut self, rules: &HandoverRules, receiver: u8) {
        let memory = self.receiver(receiver).memory;
        if !memory.has_share() && self.agreement.chosen.without(memory.rows).is_empty() {
            self.compute_share(receiver, rules.saves_shares_first);
        }
        self.receivers[usize::from(receiver)].is_done = true;
        if rules.wipes_receivers {
            self.change(receiver, true, |it| {
                let (share_of, has_wrong_share) = (it.share_of, it.has_wrong_share);
                *it = ReceiverStore { share_of, has_wrong_share, ..ReceiverStore::default() };
            });
        }
    }

    /// Commits an entry, and forgets what has no effect any more.
    fn apply(&mut self, rules: &HandoverRules, author: u8, entry: ModelledEntry) {
        self.agreement.apply(rules, author, entry);
        if !rules.forgets() {
            return;
        }
        let agreement = &mut self.agreement;
        let useless: ServerMask = if agreement.is_chosen {
            agreement.last_registered = None;
            (0..SERVERS).filter(|it| !agreement.chosen.has(*it)).collect()
        } else {
            agreement.faulty_dealers
        };
        for dealer in useless.iter() {
            self.forget(dealer);
        }
    }

    /// Forgets a dealing that is not chosen and will not be.
    fn forget(&mut self, dealer: u8) {
        self.agreement.dealings[usize::from(dealer)] = None;
        self.dealer_seeds.remove(dealer);
        for receiver in ServerMask::CORRECT.iter() {
            self.change(receiver, true, |it| it.rows.remove(dealer));
        }
        if dealer == FAULTY {
            self.wronged = ServerMask::default();
            self.complained = ServerMask::default();
        }
    }

    /// The same state for all states that differ in the numbers of correct servers only, or one of
    /// a few.
    pub(super) fn representative(&self) -> Self {
        const ORDERS: [[u8; 3]; 6] =
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let keys = [0, 1, 2].map(|receiver| self.receiver_key(receiver));
        let is_sorted = |receivers: &[u8; 3]| {
            let differ = |a: usize, b: usize| receivers[a] < receivers[b] && keys[a] > keys[b];
            !(0..3).any(|a| (0..3).any(|b| differ(a, b)))
        };
        let renumbered = ORDERS.into_iter().filter(is_sorted).map(|receivers| {
            let mut dealers = [0, 1, 2];
            dealers.sort_unstable_by_key(|dealer| self.dealer_key(*dealer, receivers));
            // `dealers` has the old number at the new place.
            let mut order = [0; 3];
            for (place, dealer) in (0..).zip(dealers) {
                order[usize::from(dealer)] = place;
            }
            self.renumbered(receivers, order)
        });
        renumbered.min().expect("there are orders")
    }

    /// What can be said about a receiver without numbers of correct servers.
    fn receiver_key(&self, receiver: u8) -> impl Ord + use<> {
        let agreement = &self.agreement;
        let it = self.receiver(receiver);
        let key = |it: &ReceiverStore| {
            let of_faulty = [it.rows.has(FAULTY), it.share_of.has(FAULTY)];
            (it.has_seed, it.has_wrong_row, it.has_wrong_share, of_faulty)
        };
        let sets = [agreement.registered, agreement.confirmed, agreement.faulty_receivers];
        let of_faulty = agreement.dealing(FAULTY).map(|it| [it.receivers, it.holders]);
        let holds = |it: &&ModelledDealing| it.holders.has(receiver);
        (
            (key(&it.memory), it.memory.rows.len(), it.memory.share_of.len()),
            (key(&it.disk), it.disk.rows.len(), it.disk.share_of.len(), it.is_done),
            sets.map(|it| it.has(receiver)),
            agreement.last_registered == Some(receiver),
            [self.wronged, self.complained].map(|it| it.has(receiver)),
            of_faulty.map(|sets| sets.map(|it| it.has(receiver))),
            agreement.dealings.iter().flatten().filter(holds).count(),
        )
    }

    /// All about a dealer, with other numbers of receivers.
    fn dealer_key(&self, dealer: u8, receivers: [u8; 3]) -> impl Ord + use<> {
        let dealing = self.agreement.dealing(dealer);
        let set = |it: ServerMask| it.renumbered(receivers);
        let rows = |of: fn(&ModelledReceiver) -> &ReceiverStore| -> ServerMask {
            let has_row = |it: &u8| of(self.receiver(*it)).rows.has(dealer);
            set(ServerMask::CORRECT.iter().filter(has_row).collect())
        };
        let copied = |it: DealingFlaw| it == DealingFlaw::CopiedKey(dealer);
        (
            dealing.map(|it| (set(it.receivers), set(it.holders))),
            rows(|it| &it.memory),
            rows(|it| &it.disk),
            [self.agreement.chosen, self.old_rows, self.dealer_seeds, self.done_dealers]
                .map(|it| it.has(dealer)),
            self.agreement.dealing(FAULTY).is_some_and(|it| copied(it.flaw)),
        )
    }

    fn renumbered(&self, receivers: [u8; 3], dealers: [u8; 3]) -> Self {
        let store = |it: ReceiverStore| ReceiverStore {
            rows: it.rows.renumbered(dealers),
            share_of: it.share_of.renumbered(dealers),
            ..it
        };
        let mut renumbered = Self {
            agreement: self.agreement.renumbered(receivers, dealers),
            old_rows: self.old_rows.renumbered(dealers),
            dealer_seeds: self.dealer_seeds.renumbered(dealers),
            done_dealers: self.done_dealers.renumbered(dealers),
            wronged: self.wronged.renumbered(receivers),
            complained: self.complained.renumbered(receivers),
            receivers: self.receivers,
        };
        for (place, it) in receivers.into_iter().zip(self.receivers) {
            renumbered.receivers[usize::from(place)] = ModelledReceiver {
                memory: store(it.memory),
                disk: store(it.disk),
                is_done: it.is_done,
            };
        }
        renumbered
    }
}
