//! Who asks, and which runs they may see.

use accounts::AccountId;

use crate::run::{RunName, RunRecord};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageVisitor {
    /// The only user, who has the address of the page.
    Owner,
    /// A person who is signed in to an account.
    Account(SignedInAccount),
    /// A person with a link to one run, who may read this run.
    Guest(LinkedRun),
    /// Anybody: a person who signs in, or accepts an invitation.
    Stranger,
}

/// An account, and the session by which a browser is signed in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedInAccount {
    pub(crate) account: accounts::Account,
    pub(crate) session: String,
}

/// A run, and the digest of a link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedRun {
    pub(crate) name: RunName,
    pub(crate) link: String,
}

impl PageVisitor {
    /// Whether a run is there for this visitor. This is the only place that decides it. What a
    /// guest may do with it, the guard decides: reading.
    pub(crate) fn may_see(&self, run: &RunRecord) -> bool {
        match self {
            Self::Owner => true,
            Self::Account(visitor) => run.owner == Some(visitor.account.id),
            Self::Guest(linked) => linked.name == run.id,
            Self::Stranger => false,
        }
    }

    /// The account to which new runs of this visitor belong.
    pub(crate) fn account(&self) -> Option<AccountId> {
        match self {
            Self::Account(visitor) => Some(visitor.account.id),
            _ => None,
        }
    }
}
