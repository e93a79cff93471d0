//! The rules of the protocol that the model can leave out.

/// The rules. [`HandoverRules::default`] are those of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandoverRules {
    /// Whether the dealers are the new servers, which draw their secrets.
    pub(super) is_key_generation: bool,
    /// How many receivers have registered before dealers deal. 2f'+1.
    pub(super) registered_before_dealing: usize,
    /// How many receivers a dealing has. 2f'+1.
    pub(super) receivers_of_a_dealing: usize,
    /// How many receivers hold a dealing that is chosen. 2f'+1.
    pub(super) holders: usize,
    /// How many receivers confirm before Final. 2f'+1.
    pub(super) confirmations: usize,
    /// F(0, 0) B is compared with the dealer's verification share.
    pub(super) compares_secrets: bool,
    /// A dealer proves that it knows e.
    pub(super) proves_ephemeral_keys: bool,
    /// A complaint counts only if the ciphertext is wrong.
    pub(super) checks_complaints: bool,
    /// A Confirm proves that its author has the new share.
    pub(super) proves_possession: bool,
    /// A receiver compares its row with the commitment.
    pub(super) checks_rows: bool,
    /// A receiver obtains rows that it lacks from those that hold the dealing.
    pub(super) repairs_rows: bool,
    /// A server without a share obtains it from its group after Final.
    pub(super) repairs_shares: bool,
    /// A dealer that is accused after the choice stays chosen.
    pub(super) keeps_the_choice: bool,
    /// A receiver's seed is on disk before its Key.
    pub(super) saves_seeds_first: bool,
    /// A row that others have helped with is on disk before the Hold. (One that was decrypted
    /// follows from the seed and the log.)
    pub(super) saves_rows_first: bool,
    /// A share is on disk before the Confirm.
    pub(super) saves_shares_first: bool,
    /// When a server of the old group wipes its row.
    pub(super) old_rows_wiped: OldRowsWiped,
    /// Receivers wipe their seeds and rows of dealings at Final.
    pub(super) wipes_receivers: bool,
    /// Dealers wipe their seeds at Final.
    pub(super) wipes_dealers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldRowsWiped {
    AtChoice,
    AtFirstConfirm,
    AtFinal,
    Never,
}

impl Default for HandoverRules {
    fn default() -> Self {
        Self {
            is_key_generation: false,
            registered_before_dealing: 3,
            receivers_of_a_dealing: 3,
            holders: 3,
            confirmations: 3,
            compares_secrets: true,
            proves_ephemeral_keys: true,
            checks_complaints: true,
            proves_possession: true,
            checks_rows: true,
            repairs_rows: true,
            repairs_shares: true,
            keeps_the_choice: true,
            saves_seeds_first: true,
            saves_rows_first: true,
            saves_shares_first: true,
            old_rows_wiped: OldRowsWiped::AtFinal,
            wipes_receivers: true,
            wipes_dealers: true,
        }
    }
}

impl HandoverRules {
    /// Whether a dealing has no effect if it is not chosen.
    pub(super) fn forgets(&self) -> bool {
        self.proves_ephemeral_keys
            && self.keeps_the_choice
            && self.wipes_receivers
            && self.wipes_dealers
    }
}
