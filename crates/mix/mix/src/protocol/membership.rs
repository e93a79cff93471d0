//! Membership of a group: invitations, joining, the epochs' keys and leaving
//! (`docs/protocols/mix.md`, groups and membership).
//!
//! Some members, the administrators, decide. The proxy forwards the messages made here. It can read
//! only the members' public keys in an announcement, whose signature it checks with
//! [`EpochAnnouncement::verify`].

mod administrator;
mod administrators;
mod announcement;
mod changes;
mod code;
mod crypto;
mod invitation;
mod invitations;
mod join;
mod name;
mod prekey;
mod preview;
mod roster;
mod safety_number;
#[cfg(test)]
mod tests;

pub use administrator::{
    Administrator, AdoptedAnnouncement, JoinDecision, NoRosterError, RemoveMemberError,
};
pub use administrators::{
    AdministratorAnchor, AdministratorList, ChangeAdministratorsError, MAX_ADMINISTRATOR_CHANGES,
    MAX_ADMINISTRATORS,
};
pub use announcement::{
    AnnouncementOrder, EpochAnnouncement, EpochAnnouncementError, MAX_ANNOUNCEMENT_LEN,
    OpenAnnouncementError, OpenedAnnouncement,
};
#[cfg(test)]
pub(crate) use announcement::{announcement_after, announcement_by_two, announcement_fixture};
pub use code::InvitationCodeError;
pub(crate) use crypto::group_id;
pub use invitation::{
    GroupAddress, Invitation, InvitationError, MAX_ADDRESS_LEN, MAX_GROUP_NAME_LEN, ProxyAddress,
};
pub use invitations::{InviteMemberError, NameBinding};
pub use join::{JOIN_ANSWER_LEN, JoinRefusal, JoinRequest, MAX_JOIN_REQUEST_LEN, decode_answer};
pub(crate) use name::NameSkeletons;
pub use name::{MemberName, MemberNameError};
pub use prekey::{MAX_NOTICE_LEN, MemberNotice, Prekey, PrekeySecret};
pub(crate) use preview::AnnouncementPreview;
pub use safety_number::SafetyNumber;
