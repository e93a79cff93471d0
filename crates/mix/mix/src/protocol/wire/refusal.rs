//! Why the proxy ends a connection, with error texts for the user at the other end.

/// Why the proxy ends a connection. It is the last message of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyRefusal {
    /// The greeting is of another version of the protocol.
    #[error("the proxy and this client have different versions of the protocol")]
    Version,
    /// No group has this name.
    #[error("the proxy has no group of this name")]
    UnknownGroup,
    /// The group has its maximum number of members.
    #[error("the group is full")]
    GroupFull,
    /// Too many clients wait for the administrator.
    #[error("too many clients are waiting for the group's administrator: try again later")]
    TooManyJoins,
    /// A member sent a join request.
    #[error("this key is a member of the group already")]
    AlreadyMember,
    /// A client that is not a member of the current epoch sent a member's message.
    #[error("this key is not a member of the group")]
    NotMember,
    /// A client that is not the administrator sent a message of the administrator.
    #[error("only the group's administrator may do this")]
    NotAdministrator,
    /// A newer connection with the same key has replaced this one.
    #[error("the same member has connected from elsewhere")]
    Replaced,
    /// The new epoch does not include this member.
    #[error("the administrator has removed this key from the group")]
    Removed,
    /// The bytes are not a message.
    #[error("a message is malformed")]
    Malformed,
    /// A message came at the wrong time.
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
    /// The announcement is of the current epoch or an earlier one.
    #[error("the announcement is of an epoch that is over: another one has been announced")]
    OldAnnouncement,
    /// The group has its maximum number of connections.
    #[error("the group has too many connections: try again later")]
    TooManyConnections,
    /// Two auditors have found that the member writes into slots that are not its own.
    #[error(
        "two auditors have found that this member writes into slots of others, so it is left out \
         until the next epoch: tell the group's administrator"
    )]
    LeftOut,
    /// The proxy is shutting down.
    #[error("the proxy is being stopped")]
    Stopping,
}

impl ProxyRefusal {
    /// All refusals. A refusal is encoded as its index in this array.
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
