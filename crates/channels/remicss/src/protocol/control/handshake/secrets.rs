//! The points and token keys of both directions, shared over all channels from client to server.
//!
//! They are shared n-of-n (XOR), so an attacker that does not read all channels knows nothing about
//! them. With the sharing alone, an attacker on one channel could add a difference of its choice to
//! any point of the server's, and tags at points with a known difference are not independent. So
//! the tamper code (`sharing::tamper`) is shared with them: the server detects any change, except
//! with probability 2^-123.

use random::{RandomError, RandomGenerator, wipe_stack};
use sharing::tamper::{self, TamperedMessage};

use crate::protocol::wire::handshake::{DIRECTION_LEN, POINTS_LEN, TunnelKeyShare};
use crate::protocol::wire::keys::{DirectionKeys, POINT_LEN, TagPoints};
use crate::protocol::wire::tokens::TokenKey;

/// The secrets of both directions.
#[derive(Clone, Debug)]
pub(super) struct HandshakeSecrets {
    pub(super) to_server: DirectionSecrets,
    pub(super) to_client: DirectionSecrets,
}

/// The secrets of one direction.
#[derive(Clone, Debug)]
pub(super) struct DirectionSecrets {
    points: TagPoints,
    tokens: TokenKey,
}

/// Draws secrets and splits them over `channels` channels, at least one.
///
/// # Errors
/// If the random source fails.
pub(super) fn split_secrets(
    channels: u8,
    generator: &mut RandomGenerator,
) -> Result<(HandshakeSecrets, Vec<TunnelKeyShare>), RandomError> {
    let mut secret = TunnelKeyShare::zeros();
    let (points, code) = parts_mut(&mut secret);
    generator.fill(points)?;
    tamper::protect_into(code, &[points], generator)?;
    let pair = HandshakeSecrets::of(&secret);
    wipe_stack();

    // All shares except the last are random, and the last is the XOR of these and the secrets.
    let mut shares = Vec::with_capacity(usize::from(channels));
    for _ in 1..channels {
        let mut share = TunnelKeyShare::zeros();
        generator.fill(&mut *share.0)?;
        secret.add(&share);
        shares.push(share);
    }
    shares.push(secret);
    Ok((pair, shares))
}

/// Joins all shares of the secrets.
///
/// # Errors
/// If a share was changed.
pub(super) fn join_secrets<'a>(
    shares: impl Iterator<Item = &'a TunnelKeyShare>,
) -> Result<HandshakeSecrets, TamperedMessage> {
    let mut secret = TunnelKeyShare::zeros();
    shares.for_each(|share| secret.add(share));
    let (points, code) = parts_mut(&mut secret);
    tamper::verify(code, &[points])?;
    let pair = HandshakeSecrets::of(&secret);
    wipe_stack();
    Ok(pair)
}

fn parts_mut(secret: &mut TunnelKeyShare) -> (&mut [u8], &mut [u8; tamper::OVERHEAD]) {
    secret.0.split_last_chunk_mut().expect("a secret is longer than its code")
}

impl HandshakeSecrets {
    fn of(secret: &TunnelKeyShare) -> Self {
        let direction = |start: usize| {
            let bytes = &secret.0[start..start + DIRECTION_LEN];
            let (points, key) = bytes.split_at(POINTS_LEN);
            let (points, _) = points.as_chunks::<POINT_LEN>();
            let points = points.try_into().expect("a point for each channel");
            let key = key.try_into().expect("all that is left");
            DirectionSecrets { points: TagPoints::new(points), tokens: TokenKey::new(key) }
        };
        Self { to_server: direction(0), to_client: direction(DIRECTION_LEN) }
    }
}

impl DirectionSecrets {
    /// The keys of the direction, for a number of channels, with or without tags.
    pub(super) fn direction(&self, channels: u8, tags: bool) -> DirectionKeys {
        DirectionKeys {
            channels: channels.into(),
            tokens: self.tokens.clone(),
            points: tags.then(|| self.points.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::handshake::SECRET_LEN;

    fn all(pair: &HandshakeSecrets) -> Vec<[u8; POINT_LEN]> {
        let both = [&pair.to_server, &pair.to_client].into_iter();
        both.flat_map(|secrets| (1..=16).map(|k| secrets.points.point(k))).collect()
    }

    #[test]
    fn all_shares_give_the_points() {
        let mut generator = RandomGenerator::seeded().unwrap();
        for n in 1..=16 {
            let (split, shares) = split_secrets(n, &mut generator).unwrap();
            assert_eq!(shares.len(), usize::from(n));
            let collected = join_secrets(shares.iter()).unwrap();
            assert_eq!(all(&collected), all(&split));
            let ids =
                |pair: &HandshakeSecrets| [pair.to_server.tokens.id(), pair.to_client.tokens.id()];
            assert_eq!(ids(&collected), ids(&split));
            assert_ne!(ids(&split)[0], ids(&split)[1]);
            let mut distinct = all(&split);
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 32, "no point comes twice");
        }
    }

    #[test]
    fn any_change_to_a_key_share_is_detected() {
        let (_, shares) = split_secrets(3, &mut RandomGenerator::seeded().unwrap()).unwrap();
        for place in 0..SECRET_LEN {
            let mut changed = shares.clone();
            changed[place % 3].0[place] ^= 1 << (place % 8);
            assert!(join_secrets(changed.iter()).is_err(), "byte {place}");
        }
        assert!(join_secrets(shares[..2].iter()).is_err(), "one is missing");
    }
}
