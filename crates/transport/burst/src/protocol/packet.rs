//! Parses and builds datagrams, without decrypting them (docs/protocols/burst.md, *Datagrams*).

/// The length of a datagram's header.
pub(in crate::protocol) const HEADER_LEN: usize = 16;

/// The length of a hello, and the longest datagram before path MTU discovery.
pub(in crate::protocol) const MIN_DATAGRAM_LEN: usize = 1232;

/// The length of the longest datagram after path MTU discovery.
pub(in crate::protocol) const MAX_DATAGRAM_LEN: usize = 1472;

/// The version of the protocol.
pub(in crate::protocol) const VERSION: u8 = 1;

/// The length of a cookie.
pub(in crate::protocol) const COOKIE_LEN: usize = 16;

/// The length of the prologue: the bytes of a hello that its first message authenticates.
pub(in crate::protocol) const PROLOGUE_LEN: usize = 18;

/// The highest packet number, and the highest offset in a stream: both are varints.
pub(in crate::protocol) const MAX_NUMBER: u64 = (1 << 62) - 1;

const MAGIC: &[u8; 7] = b"SNDRBST";
const HELLO: u8 = 1;
const TRAIN: u8 = 2;
const ANSWER: u8 = 3;
const RETRY: u8 = 4;
const REFUSAL: u8 = 5;

/// The position of a hello's cookie and of its first message.
const COOKIE_AT: usize = 19;
const MESSAGE_AT: usize = COOKIE_AT + COOKIE_LEN;

/// A connection id: the receiver of packets uses it to tell connections apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::protocol) struct BurstConnectionId(u64);

impl BurstConnectionId {
    /// `None` if a datagram with this id would look like a handshake datagram.
    pub(in crate::protocol) fn new(random: [u8; 8]) -> Option<Self> {
        (random[..7] != MAGIC[..]).then_some(Self(u64::from_be_bytes(random)))
    }

    /// The bytes of the id.
    pub(in crate::protocol) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstEncryptionMode {
    Insecure = 0,
    Noise = 1,
}

/// A datagram.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstDatagram<'a> {
    /// A handshake datagram, about the connection with this id at the client.
    Handshake(BurstConnectionId, BurstHandshakeMessage<'a>),
    /// A packet of the connection with this id at the packet's receiver.
    Sealed { to: BurstConnectionId, number: u64, sealed: &'a [u8] },
}

/// The content of a handshake datagram.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstHandshakeMessage<'a> {
    Hello(BurstHello<'a>),
    /// A hello of another protocol version.
    OtherVersion,
    /// A datagram of a train: its position, and the number of datagrams in the train.
    Train(u8, u8),
    /// The second message.
    Answer(&'a [u8]),
    Retry([u8; COOKIE_LEN]),
    Refusal(BurstRefusalReason),
}

/// The first datagram of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::protocol) struct BurstHello<'a> {
    pub(in crate::protocol) mode: BurstEncryptionMode,
    /// The number of datagrams in the train that follows it.
    pub(in crate::protocol) train: u8,
    /// All zeros if there is no cookie.
    pub(in crate::protocol) cookie: [u8; COOKIE_LEN],
    /// The bytes that the first message authenticates.
    pub(in crate::protocol) prologue: [u8; PROLOGUE_LEN],
    /// The first message, with its padding.
    pub(in crate::protocol) message: &'a [u8],
}

/// Why a listener rejects a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstRefusalReason {
    /// The client expects a listener with another key.
    OtherKey = 1,
    /// The listener does not expect this client.
    UnknownKey = 2,
    /// Only one end uses encryption.
    OtherMode = 3,
    /// The listener has another protocol version.
    OtherVersion = 4,
    /// The listener has too many connections.
    Busy = 5,
}

impl<'a> BurstDatagram<'a> {
    /// `None` if it is not a datagram of this protocol.
    pub(in crate::protocol) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (header, content) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let number = u64::from_be_bytes(*header.last_chunk()?);
        if header[..7] != MAGIC[..] {
            let to = BurstConnectionId(u64::from_be_bytes(*header.first_chunk()?));
            let is_packet = number <= MAX_NUMBER && datagram.len() <= MAX_DATAGRAM_LEN;
            return is_packet.then_some(Self::Sealed { to, number, sealed: content });
        }
        let id = BurstConnectionId::new(number.to_be_bytes())?;
        let handshake = match header[7] {
            HELLO if datagram.len() < MIN_DATAGRAM_LEN => return None,
            HELLO if datagram[16] != VERSION => BurstHandshakeMessage::OtherVersion,
            HELLO => BurstHandshakeMessage::Hello(BurstHello {
                mode: match datagram[17] {
                    0 => BurstEncryptionMode::Insecure,
                    1 => BurstEncryptionMode::Noise,
                    _ => return None,
                },
                train: datagram[18],
                cookie: *datagram[COOKIE_AT..].first_chunk()?,
                prologue: *datagram.first_chunk()?,
                message: &datagram[MESSAGE_AT..],
            }),
            TRAIN if content.len() >= 2 && content[0] < content[1] => {
                BurstHandshakeMessage::Train(content[0], content[1])
            }
            ANSWER => BurstHandshakeMessage::Answer(content),
            RETRY if content.len() == COOKIE_LEN => {
                BurstHandshakeMessage::Retry(*content.first_chunk()?)
            }
            REFUSAL => {
                let reason = match content {
                    [1] => BurstRefusalReason::OtherKey,
                    [2] => BurstRefusalReason::UnknownKey,
                    [3] => BurstRefusalReason::OtherMode,
                    [4] => BurstRefusalReason::OtherVersion,
                    [5] => BurstRefusalReason::Busy,
                    _ => return None,
                };
                BurstHandshakeMessage::Refusal(reason)
            }
            _ => return None,
        };
        Some(Self::Handshake(id, handshake))
    }
}

/// Writes a hello without its first message, and returns the prologue for that message.
pub(in crate::protocol) fn hello(
    id: BurstConnectionId,
    mode: BurstEncryptionMode,
    train: u8,
) -> (Vec<u8>, [u8; PROLOGUE_LEN]) {
    let mut hello = Vec::with_capacity(MIN_DATAGRAM_LEN);
    write_header(HELLO, id, &mut hello);
    hello.extend([VERSION, mode as u8]);
    let mut prologue = [0; PROLOGUE_LEN];
    prologue.copy_from_slice(&hello);
    hello.push(train);
    hello.extend([0; COOKIE_LEN]);
    (hello, prologue)
}

/// Adds the first message to a hello, and pads it.
pub(in crate::protocol) fn finish_hello(hello: &mut Vec<u8>, message: &[u8]) {
    hello.extend(message);
    hello.resize(MIN_DATAGRAM_LEN, 0);
}

/// Writes a cookie into a hello.
pub(in crate::protocol) fn set_cookie(hello: &mut [u8], cookie: [u8; COOKIE_LEN]) {
    hello[COOKIE_AT..MESSAGE_AT].copy_from_slice(&cookie);
}

/// Writes a datagram of a train of `count` datagrams.
pub(in crate::protocol) fn write_train(
    id: BurstConnectionId,
    position: u8,
    count: u8,
    datagram: &mut Vec<u8>,
) {
    write_header(TRAIN, id, datagram);
    datagram.extend([position, count]);
    datagram.resize(train_len(position, count), 0);
}

/// The length of a datagram of a train. The last four have the maximum length, to find out whether
/// the path carries it.
pub(in crate::protocol) fn train_len(position: u8, count: u8) -> usize {
    if position.saturating_add(4) >= count { MAX_DATAGRAM_LEN } else { MIN_DATAGRAM_LEN }
}

/// The answer: the datagram with the second message.
pub(in crate::protocol) fn answer(id: BurstConnectionId, message: &[u8]) -> Vec<u8> {
    long(ANSWER, id, &[message])
}

/// The datagram with a cookie.
pub(in crate::protocol) fn retry(id: BurstConnectionId, cookie: [u8; COOKIE_LEN]) -> Vec<u8> {
    long(RETRY, id, &[&cookie])
}

/// The datagram that tells a client why its hello was rejected.
pub(in crate::protocol) fn refusal(id: BurstConnectionId, reason: BurstRefusalReason) -> Vec<u8> {
    long(REFUSAL, id, &[&[reason as u8]])
}

/// Writes the header of a packet.
pub(in crate::protocol) fn write_packet_header(
    to: BurstConnectionId,
    number: u64,
    datagram: &mut Vec<u8>,
) {
    datagram.extend(to.to_bytes());
    datagram.extend(number.to_be_bytes());
}

fn long(kind: u8, id: BurstConnectionId, parts: &[&[u8]]) -> Vec<u8> {
    let mut datagram = Vec::new();
    write_header(kind, id, &mut datagram);
    for part in parts {
        datagram.extend(*part);
    }
    datagram
}

fn write_header(kind: u8, id: BurstConnectionId, datagram: &mut Vec<u8>) {
    datagram.extend(MAGIC);
    datagram.push(kind);
    datagram.extend(id.to_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id() -> BurstConnectionId {
        BurstConnectionId::new([7; 8]).unwrap()
    }

    #[test]
    fn what_is_written_is_parsed() {
        let (mut datagram, prologue) = hello(id(), BurstEncryptionMode::Noise, 64);
        finish_hello(&mut datagram, b"message");
        set_cookie(&mut datagram, [3; COOKIE_LEN]);
        assert_eq!(datagram.len(), MIN_DATAGRAM_LEN);
        let Some(BurstDatagram::Handshake(from, BurstHandshakeMessage::Hello(hello))) =
            BurstDatagram::parse(&datagram)
        else {
            panic!("not a hello");
        };
        assert_eq!((from, hello.mode, hello.train), (id(), BurstEncryptionMode::Noise, 64));
        assert_eq!((hello.cookie, hello.prologue), ([3; COOKIE_LEN], prologue));
        assert_eq!(&hello.message[..8], b"message\0");
        datagram[16] = 2;
        let other = BurstDatagram::Handshake(id(), BurstHandshakeMessage::OtherVersion);
        assert_eq!(BurstDatagram::parse(&datagram), Some(other));

        for (datagram, content) in [
            (answer(id(), b"message"), BurstHandshakeMessage::Answer(b"message")),
            (retry(id(), [4; COOKIE_LEN]), BurstHandshakeMessage::Retry([4; COOKIE_LEN])),
            (
                refusal(id(), BurstRefusalReason::OtherMode),
                BurstHandshakeMessage::Refusal(BurstRefusalReason::OtherMode),
            ),
        ] {
            assert_eq!(
                BurstDatagram::parse(&datagram),
                Some(BurstDatagram::Handshake(id(), content))
            );
        }
        for (position, len) in [(59, 1232), (60, 1472)] {
            let mut datagram = Vec::new();
            write_train(id(), position, 64, &mut datagram);
            assert_eq!(datagram.len(), len);
            let train = BurstDatagram::Handshake(id(), BurstHandshakeMessage::Train(position, 64));
            assert_eq!(BurstDatagram::parse(&datagram), Some(train));
        }
        let mut datagram = Vec::new();
        write_packet_header(id(), 9, &mut datagram);
        datagram.extend(b"frames");
        let packet = BurstDatagram::Sealed { to: id(), number: 9, sealed: b"frames" };
        assert_eq!(BurstDatagram::parse(&datagram), Some(packet));
    }

    #[test]
    fn an_id_is_not_taken_for_a_handshake() {
        assert_eq!(BurstConnectionId::new(*b"SNDRBST\x01"), None);
        assert_eq!(BurstConnectionId::new(*b"SNDRBSU\x01").unwrap().to_bytes(), *b"SNDRBSU\x01");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(
            mut bytes in prop::collection::vec(any::<u8>(), 0..1600),
            kind in prop::option::of(0_u8..8),
        ) {
            if let (Some(kind), Some(header)) = (kind, bytes.first_chunk_mut::<8>()) {
                *header = *b"SNDRBST\0";
                header[7] = kind;
            }
            BurstDatagram::parse(&bytes);
        }
    }
}
