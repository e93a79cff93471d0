//! The agreed state of the modelled handover: what the page says that entries do. A proof is just
//! right or wrong here, and a set has one dealing, because a Hold of several is the same as a Hold
//! of each in the order of the dealers.

use std::fmt;

use super::rules::HandoverRules;

/// 3f+1 servers of each group. Numbers begin with 0, and the last server is faulty.
pub(super) const SERVERS: u8 = 4;
/// The faulty server of each group.
pub(super) const FAULTY: u8 = SERVERS - 1;
/// f+1.
pub(super) const SIGNERS: usize = 2;

/// A set of servers of one group.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ServerMask(u8);

impl ServerMask {
    pub(super) const CORRECT: Self = Self(0b0111);

    pub(super) fn has(self, server: u8) -> bool {
        (self.0 >> server) & 1 == 1
    }

    pub(super) fn insert(&mut self, server: u8) {
        self.0 |= 1 << server;
    }

    pub(super) fn remove(&mut self, server: u8) {
        self.0 &= !(1 << server);
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0..SERVERS).filter(move |server| self.has(*server))
    }

    /// All subsets, with this set and the empty one.
    pub(super) fn subsets(self) -> impl Iterator<Item = Self> {
        (0..1 << SERVERS).map(Self).filter(move |it| it.without(self).is_empty())
    }

    /// The set with other numbers for the correct servers.
    pub(super) fn renumbered(self, order: [u8; 3]) -> Self {
        let correct = |i: usize| ((self.0 >> i) & 1) << order[i];
        Self((self.0 & (1 << FAULTY)) | correct(0) | correct(1) | correct(2))
    }
}

impl FromIterator<u8> for ServerMask {
    fn from_iter<T: IntoIterator<Item = u8>>(servers: T) -> Self {
        Self(servers.into_iter().fold(0, |set, server| set | (1 << server)))
    }
}

impl fmt::Debug for ServerMask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter()).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DealingFlaw {
    None,
    /// F(0, 0) is not the dealer's share.
    OtherSecret,
    /// E is that of another dealer.
    CopiedKey(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModelledDealing {
    /// Those with a ciphertext.
    pub(super) receivers: ServerMask,
    pub(super) flaw: DealingFlaw,
    pub(super) holders: ServerMask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelledEntry {
    Key { is_proven: bool },
    Deal { receivers: ServerMask, flaw: DealingFlaw },
    Hold { dealer: u8 },
    Complain { dealer: u8, is_right: bool },
    Confirm { is_proven: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelledVerdict {
    Unchanged,
    Counted,
    AuthorFaulty,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModelledAgreement {
    pub(super) registered: ServerMask,
    /// The receiver that registered last, if all have.
    pub(super) last_registered: Option<u8>,
    pub(super) dealings: [Option<ModelledDealing>; SERVERS as usize],
    pub(super) chosen: ServerMask,
    /// Whether the choice is complete.
    pub(super) is_chosen: bool,
    pub(super) confirmed: ServerMask,
    pub(super) faulty_dealers: ServerMask,
    pub(super) faulty_receivers: ServerMask,
}

impl ModelledAgreement {
    pub(super) fn dealing(&self, dealer: u8) -> Option<&ModelledDealing> {
        self.dealings[usize::from(dealer)].as_ref()
    }

    pub(super) fn is_final(&self, rules: &HandoverRules) -> bool {
        self.confirmed.len() >= rules.confirmations
    }

    pub(super) fn apply(
        &mut self,
        rules: &HandoverRules,
        author: u8,
        entry: ModelledEntry,
    ) -> ModelledVerdict {
        let is_dealer = matches!(entry, ModelledEntry::Deal { .. });
        let faulty = if is_dealer { self.faulty_dealers } else { self.faulty_receivers };
        if self.is_final(rules)
            || faulty.has(author)
            || self.is_early(author, entry)
            || self.is_repeated(author, entry)
        {
            return ModelledVerdict::Unchanged;
        }
        let is_right = match entry {
            ModelledEntry::Key { is_proven } => is_proven,
            ModelledEntry::Deal { receivers, flaw } => {
                receivers.len() >= rules.receivers_of_a_dealing
                    && match flaw {
                        DealingFlaw::None => true,
                        DealingFlaw::OtherSecret => !rules.compares_secrets,
                        DealingFlaw::CopiedKey(_) => !rules.proves_ephemeral_keys,
                    }
            }
            ModelledEntry::Hold { .. } => true,
            ModelledEntry::Complain { is_right, .. } => is_right || !rules.checks_complaints,
            ModelledEntry::Confirm { is_proven } => is_proven || !rules.proves_possession,
        };
        if is_right {
            self.count(rules, author, entry);
            return ModelledVerdict::Counted;
        }
        match is_dealer {
            true => self.accuse_dealer(rules, author),
            false => self.faulty_receivers.insert(author),
        }
        ModelledVerdict::AuthorFaulty
    }

    fn is_early(&self, author: u8, entry: ModelledEntry) -> bool {
        match entry {
            ModelledEntry::Key { .. } => false,
            ModelledEntry::Deal { receivers, .. } => !receivers.without(self.registered).is_empty(),
            ModelledEntry::Hold { dealer } => {
                self.dealing(dealer).is_none() || !self.registered.has(author)
            }
            ModelledEntry::Complain { dealer, .. } => {
                !self.dealing(dealer).is_some_and(|it| it.receivers.has(author))
            }
            ModelledEntry::Confirm { .. } => !self.is_chosen || !self.registered.has(author),
        }
    }

    fn is_repeated(&self, author: u8, entry: ModelledEntry) -> bool {
        match entry {
            ModelledEntry::Key { .. } => self.registered.has(author),
            ModelledEntry::Deal { .. } => self.dealing(author).is_some(),
            ModelledEntry::Hold { dealer } => {
                self.dealing(dealer).is_some_and(|it| it.holders.has(author))
            }
            ModelledEntry::Complain { dealer, .. } => self.faulty_dealers.has(dealer),
            ModelledEntry::Confirm { .. } => self.confirmed.has(author),
        }
    }

    fn count(&mut self, rules: &HandoverRules, author: u8, entry: ModelledEntry) {
        match entry {
            ModelledEntry::Key { .. } => {
                self.registered.insert(author);
                if self.registered.len() == usize::from(SERVERS) {
                    self.last_registered = Some(author);
                }
            }
            ModelledEntry::Deal { receivers, flaw } => {
                let holders = ServerMask::default();
                self.dealings[usize::from(author)] =
                    Some(ModelledDealing { receivers, flaw, holders });
            }
            ModelledEntry::Hold { dealer } => self.hold(rules, author, dealer),
            ModelledEntry::Complain { dealer, .. } => self.accuse_dealer(rules, dealer),
            ModelledEntry::Confirm { .. } => self.confirmed.insert(author),
        }
    }

    fn hold(&mut self, rules: &HandoverRules, author: u8, dealer: u8) {
        let Some(dealing) = &mut self.dealings[usize::from(dealer)] else { return };
        dealing.holders.insert(author);
        let is_held = dealing.holders.len() >= rules.holders;
        if !self.is_chosen && is_held && !self.faulty_dealers.has(dealer) {
            self.chosen.insert(dealer);
            self.is_chosen = self.chosen.len() == SIGNERS;
        }
    }

    fn accuse_dealer(&mut self, rules: &HandoverRules, dealer: u8) {
        self.faulty_dealers.insert(dealer);
        if !self.is_chosen || !rules.keeps_the_choice {
            self.chosen.remove(dealer);
            self.is_chosen = self.chosen.len() == SIGNERS;
        }
    }

    /// Who is correct has no number that matters. `receivers` and `dealers` are other numbers.
    pub(super) fn renumbered(&self, receivers: [u8; 3], dealers: [u8; 3]) -> Self {
        let number = |order: [u8; 3], it: u8| order.get(usize::from(it)).copied().unwrap_or(it);
        let mut dealings = [None; SERVERS as usize];
        for (dealer, dealing) in (0..).zip(self.dealings) {
            let dealing = dealing.map(|it| ModelledDealing {
                receivers: it.receivers.renumbered(receivers),
                holders: it.holders.renumbered(receivers),
                flaw: match it.flaw {
                    DealingFlaw::CopiedKey(of) => DealingFlaw::CopiedKey(number(dealers, of)),
                    flaw => flaw,
                },
            });
            dealings[usize::from(number(dealers, dealer))] = dealing;
        }
        Self {
            registered: self.registered.renumbered(receivers),
            last_registered: self.last_registered.map(|it| number(receivers, it)),
            dealings,
            chosen: self.chosen.renumbered(dealers),
            is_chosen: self.is_chosen,
            confirmed: self.confirmed.renumbered(receivers),
            faulty_dealers: self.faulty_dealers.renumbered(dealers),
            faulty_receivers: self.faulty_receivers.renumbered(receivers),
        }
    }
}
