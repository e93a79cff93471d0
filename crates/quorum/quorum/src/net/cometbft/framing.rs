//! Messages on CometBFT's Unix sockets: each after its length as a varint.

use std::io;

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest message, in bytes. A block has at most 4 MiB.
const MAX_MESSAGE_LEN: usize = 16 << 20;

/// Reads the next message. `None` at the end of the stream.
///
/// # Errors
/// If the stream breaks, or the bytes are not a message.
pub(super) async fn read<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<M>> {
    let mut len = 0;
    for shift in (0..).step_by(7) {
        let byte = match stream.read_u8().await {
            Ok(byte) => byte,
            Err(error) if shift == 0 && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        len |= usize::from(byte & 0x7f) << shift;
        if len > MAX_MESSAGE_LEN || shift > 21 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    M::decode(bytes::Bytes::from(bytes))
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes a message.
///
/// # Errors
/// If the stream breaks.
pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Message,
) -> io::Result<()> {
    stream.write_all(&message.encode_length_delimited_to_vec()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::cometbft::messages::AbciEcho;

    #[tokio::test]
    async fn messages_are_bounded() {
        let long = AbciEcho { message: "a".repeat(70_000) };
        let mut bytes = Vec::new();
        write(&mut bytes, &long).await.unwrap();
        let mut rest = &bytes[..];
        assert_eq!(read(&mut rest).await.unwrap(), Some(long));
        assert_eq!(read::<AbciEcho>(&mut rest).await.unwrap(), None);
        let (cut, huge) = (&mut &bytes[..100], &mut &[0xff; 20][..]);
        assert!(read::<AbciEcho>(cut).await.is_err());
        assert!(read::<AbciEcho>(huge).await.unwrap_err().to_string().contains("too long"));
        assert!(read::<AbciEcho>(&mut &[0xff, 0xff, 0xff, 0xff, 0x01, 0][..]).await.is_err());
    }
}
