//! Who asks, and which runs they may see.

use accounts::{AccountId, AccountSecret};

use crate::run::{RunName, RunRecord};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum PageVisitor {
    /// The only user, who has the address of the page.
    Owner,
    /// A person who is signed in to an account.
    Account(SignedInAccount),
    /// A person with a link to one run, who may read this run.
    LinkHolder(LinkedRun),
    /// Anybody: a person who signs in, or accepts an invitation.
    Stranger,
}

/// An account, and the session by which a browser is signed in to it.
#[derive(Clone, Debug)]
pub(crate) struct SignedInAccount {
    pub(crate) account: accounts::Account,
    pub(crate) session: AccountSecret,
}

/// A run, and the digest of a link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedRun {
    pub(crate) name: RunName,
    pub(crate) link: String,
}

impl PageVisitor {
    /// Whether a run is there for this visitor. This is the only place that decides it. The guard
    /// decides that a person with a link only reads it.
    pub(crate) fn may_see(&self, run: &RunRecord) -> bool {
        match self {
            Self::Owner => true,
            Self::Account(visitor) => run.owner == Some(visitor.account.id),
            Self::LinkHolder(linked) => linked.name == run.id,
            Self::Stranger => false,
        }
    }

    /// Whether the server knows this visitor by more than a link.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Owner | Self::Account(_))
    }

    /// The account to which new runs of this visitor belong.
    pub(crate) fn account(&self) -> Option<AccountId> {
        match self {
            Self::Account(visitor) => Some(visitor.account.id),
            _ => None,
        }
    }
}
