//! Membership of a group: invitations, joining, the epochs' keys and leaving
//! (`docs/protocols/mix.md`, groups and membership).
//!
//! One member, the administrator, decides. The proxy forwards the messages made here. It can read
//! only the members' public keys in an announcement, whose signature it checks with
//! [`EpochAnnouncement::verify`].

mod administrator;
mod announcement;
mod code;
mod crypto;
mod invitation;
mod join;
mod name;
mod prekey;
mod safety_number;
#[cfg(test)]
mod tests;

pub use administrator::{
    Administrator, InviteMemberError, JoinDecision, NameBinding, RemoveMemberError,
};
#[cfg(test)]
pub(crate) use announcement::announcement_fixture;
pub use announcement::{
    EpochAnnouncement, EpochAnnouncementError, MAX_ANNOUNCEMENT_LEN, OpenAnnouncementError,
    OpenedAnnouncement,
};
pub use code::InvitationCodeError;
pub(crate) use crypto::group_id;
pub use invitation::{
    GroupAddress, Invitation, InvitationError, MAX_ADDRESS_LEN, MAX_GROUP_NAME_LEN,
};
pub use join::{JOIN_ANSWER_LEN, JoinRefusal, JoinRequest, MAX_JOIN_REQUEST_LEN, decode_answer};
pub(crate) use name::NameSkeletons;
pub use name::{MemberName, MemberNameError};
pub use prekey::{MAX_NOTICE_LEN, MemberNotice, Prekey, PrekeySecret};
pub use safety_number::SafetyNumber;
