//! Why the proxy ends a connection, in words for the person at the other end.

/// Why the proxy ends a connection. Nothing else comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyRefusal {
    /// The greeting is of another version of the protocol.
    #[error("the proxy speaks another version of the protocol: update the older one of both")]
    Version,
    /// No group has this name.
    #[error("the proxy has no group of this name")]
    UnknownGroup,
    /// The group has as many members as it can.
    #[error("the group is full: ask its administrator")]
    GroupFull,
    /// Too many clients wait for the administrator.
    #[error("too many others wait for the group's administrator: try again later")]
    TooManyJoins,
    /// A member asked to join.
    #[error("this key is a member of the group already")]
    AlreadyMember,
    /// Who is no member of the current epoch did what members do.
    #[error("this key is not a member of the group")]
    NotMember,
    /// Who is not the administrator did what administrators do.
    #[error("only the group's administrator may do this")]
    NotAdministrator,
    /// A newer connection with the same key has taken the place of this one.
    #[error("the same member has connected from elsewhere")]
    Replaced,
    /// The new epoch is without this member.
    #[error("the administrator has removed this key from the group")]
    Removed,
    /// The bytes are not a message.
    #[error("a message is malformed")]
    Malformed,
    /// A message that was not due.
    #[error("a message came out of turn")]
    OutOfTurn,
    /// A request was for a round that is not open to the member.
    #[error("a request was for another round")]
    WrongRound,
    /// The engine did not accept a message.
    #[error("the exchange failed: both ends need the same version")]
    Engine,
    /// The member sent more messages than it may in a round.
    #[error("too many messages in one round")]
    TooManyMessages,
    /// The announcement is not signed by the administrator, or does not fit the group.
    #[error("the announcement of the epoch is not valid")]
    BadAnnouncement,
    /// The announcement is not of an epoch after the current one.
    #[error("the announcement is of an epoch that is over: another one has been announced")]
    OldAnnouncement,
    /// The proxy has as many connections to the group as it takes.
    #[error("the group has too many connections: try again later")]
    TooManyConnections,
    /// Two auditors have found that the member writes into slots that are not its own.
    #[error(
        "two members have found that this one writes into slots of others, so it is left out until \
         the next epoch: tell the group's administrator"
    )]
    LeftOut,
    /// The proxy ends.
    #[error("the proxy is being stopped")]
    Stopping,
}

impl ProxyRefusal {
    /// All of them; a refusal is sent as its place here.
    pub const ALL: [Self; 19] = [
        Self::Version,
        Self::UnknownGroup,
        Self::GroupFull,
        Self::TooManyJoins,
        Self::AlreadyMember,
        Self::NotMember,
        Self::NotAdministrator,
        Self::Replaced,
        Self::Removed,
        Self::Malformed,
        Self::OutOfTurn,
        Self::WrongRound,
        Self::Engine,
        Self::TooManyMessages,
        Self::BadAnnouncement,
        Self::OldAnnouncement,
        Self::TooManyConnections,
        Self::Stopping,
        Self::LeftOut,
    ];
}
