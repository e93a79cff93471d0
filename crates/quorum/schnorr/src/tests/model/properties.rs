//! What must be true of each state.

use super::agreement::{DealingFlaw, FAULTY, SERVERS, SIGNERS, ServerMask};
use super::rules::HandoverRules;
use super::state::{ModelledHandover, ReceiverStore};

impl ModelledHandover {
    pub(super) fn accuses_only_faulty_servers(&self) -> bool {
        let accused = [self.agreement.faulty_dealers, self.agreement.faulty_receivers];
        accused.iter().all(|it| it.and(ServerMask::CORRECT).is_empty())
    }

    /// All shares are of the same dealings, the chosen ones, and none of these changes the key.
    pub(super) fn has_one_key(&self) -> bool {
        let agreement = &self.agreement;
        let stores = self.receivers.iter().flat_map(|it| [it.memory, it.disk]);
        let mut shares = stores.filter(ReceiverStore::has_share);
        let is_same = |it: ReceiverStore| it.share_of == agreement.chosen && !it.has_wrong_share;
        let changes_key = agreement.is_chosen
            && agreement.chosen.iter().any(|dealer| {
                let dealing = agreement.dealing(dealer);
                dealing.is_none_or(|it| it.flaw == DealingFlaw::OtherSecret)
            });
        shares.all(is_same) && !changes_key
    }

    /// If an old row is gone, the disks of correct new servers have the new rows of all of them, or
    /// what determines these. In a key generation, if the handover is final.
    pub(super) fn loses_nothing(&self, rules: &HandoverRules) -> bool {
        let is_old_complete = match rules.is_key_generation {
            true => !self.agreement.is_final(rules),
            false => self.old_rows == ServerMask::CORRECT,
        };
        is_old_complete || self.is_new_determined()
    }

    fn is_new_determined(&self) -> bool {
        let agreement = &self.agreement;
        if !agreement.is_chosen {
            return false;
        }
        // The rows of a dealing that each determine, from its row or its ciphertext. As nobody
        // knows whether an unopened ciphertext of the faulty dealer is right, it does not count.
        let has_row = |receiver: u8, dealer: u8| {
            let disk = &self.receivers[usize::from(receiver)].disk;
            let is_wrong = dealer == FAULTY && disk.has_wrong_row;
            let dealing = agreement.dealing(dealer);
            let has_ciphertext = dealing.is_some_and(|it| it.receivers.has(receiver));
            let decrypts = disk.has_seed && has_ciphertext && dealer != FAULTY;
            disk.rows.has(dealer) && !is_wrong || decrypts
        };
        let rows = |dealer: u8| -> ServerMask {
            let with_row: ServerMask =
                ServerMask::CORRECT.iter().filter(|it| has_row(*it, dealer)).collect();
            // f'+1 rows determine all.
            if with_row.len() >= SIGNERS { ServerMask::CORRECT } else { with_row }
        };
        let of_dealings = agreement.chosen.iter().map(rows);
        let of_dealings = of_dealings.fold(ServerMask::CORRECT, ServerMask::and);
        let with_share = ServerMask::CORRECT.iter().filter(|receiver| {
            let disk = &self.receivers[usize::from(*receiver)].disk;
            disk.has_share() && !disk.has_wrong_share || of_dealings.has(*receiver)
        });
        with_share.count() >= SIGNERS
    }

    /// The adversary has the log, all of the faulty servers, and the disks of all servers that are
    /// done, into which it breaks in later epochs. Of these it does not have the new rows, which
    /// are gone by then.
    pub(super) fn is_secret(&self, rules: &HandoverRules) -> bool {
        let knows = |dealer: u8| dealer == FAULTY || self.reveals_polynomial(dealer);
        let known = (0..SERVERS).filter(|dealer| knows(*dealer));
        let knows_chosen = self.agreement.is_chosen && self.agreement.chosen.iter().all(knows);
        let has_old_row =
            |dealer: &u8| self.done_dealers.has(*dealer) && self.old_rows.has(*dealer);
        let old_rows = (0..SERVERS).filter(has_old_row);
        let shares: ServerMask = known.chain(old_rows).collect();
        !knows_chosen && (rules.is_key_generation || shares.len() < SIGNERS)
    }

    /// Whether the adversary has f'+1 rows of a correct dealer, of which it has one, or its seed.
    fn reveals_polynomial(&self, dealer: u8) -> bool {
        let Some(dealing) = self.agreement.dealing(dealer) else { return false };
        let faulty = self.agreement.dealing(FAULTY);
        let is_copied = faulty.is_some_and(|it| it.flaw == DealingFlaw::CopiedKey(dealer));
        let published = if is_copied { self.complained } else { ServerMask::default() };
        let is_revealed = |receiver: &u8| {
            let it = &self.receivers[usize::from(*receiver)];
            let is_readable = published.has(*receiver) || it.is_done && it.disk.has_seed;
            dealing.receivers.has(*receiver) && is_readable
                || it.is_done && it.disk.rows.has(dealer)
        };
        ServerMask::CORRECT.iter().any(|it| is_revealed(&it))
            || self.done_dealers.has(dealer) && self.dealer_seeds.has(dealer)
    }

    /// Whether the handover is final, and all correct servers have what they should have.
    pub(super) fn has_ended(&self, rules: &HandoverRules) -> bool {
        self.agreement.is_final(rules)
            && self.receivers.iter().all(|it| it.is_done && it.disk.has_share())
    }

    /// Whether correct servers can go on without the faulty ones, or have ended. All their steps
    /// add something, so a handover in which this is always true ends.
    pub(super) fn goes_on(&self, rules: &HandoverRules) -> bool {
        let mut steps = Vec::new();
        self.steps(rules, &mut steps);
        let is_step = |step: &_| self.after(rules, *step) != *self;
        self.has_ended(rules) || steps.iter().any(|it| it.is_certain() && is_step(it))
    }
}
