//! What whoever listens on one channel finds.

/// How long the pieces are that are looked for.
const PIECE: usize = 12;

/// Bytes that come in no capture by chance.
pub(crate) fn secret(len: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(len).collect()
}

/// That a secret has crossed the channels, and that no capture has any piece of it.
pub(crate) fn assert_hidden(captures: &[Vec<u8>], secret: &[u8]) {
    for (channel, capture) in captures.iter().enumerate() {
        let (len, needed) = (capture.len(), secret.len());
        assert!(len > needed, "channel {channel} has {len} of {needed} bytes");
        for piece in secret.chunks_exact(PIECE).step_by(secret.len() / PIECE / 50 + 1) {
            let found = capture.windows(PIECE).any(|window| window == piece);
            assert!(!found, "channel {channel} shows what crossed");
        }
    }
}
