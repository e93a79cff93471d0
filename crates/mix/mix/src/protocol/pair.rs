//! The keys that two members share. They seal slots and, in oblivious exchanges, select the slot of
//! a message.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use curve25519_dalek::MontgomeryPoint;
use keys::{IdentityPublicKey, IdentitySecretKey, SharedKey};
use zeroize::Zeroizing;

use crate::MixGroupKey;
use crate::protocol::round::NONCE_LEN;

/// Length of the authenticator of a slot in bytes.
pub(crate) const TAG_LEN: usize = 16;

/// The keys of a pair of members, one for each direction.
pub(crate) struct PairKeys {
    /// For messages of this member to the other.
    pub(crate) to: PairKey,
    /// For messages of the other to this member.
    pub(crate) from: PairKey,
}

impl PairKeys {
    /// The keys that the identities `own` and `partner` share.
    pub(crate) fn new(own: &IdentitySecretKey, partner: &IdentityPublicKey) -> Self {
        let secret = own.x25519();
        let shared = MontgomeryPoint(partner.x25519()).mul_clamped(*secret);
        let shared = SharedKey::new(&Zeroizing::new(shared.to_bytes()));
        let (own, partner) = (own.public().to_bytes(), partner.to_bytes());
        let direction = |from: &[u8], to: &[u8]| {
            let key = shared.authenticate(&[b"sunder mix pair 1", from, to]);
            PairKey::new(&Zeroizing::new(key))
        };
        Self { to: direction(&own, &partner), from: direction(&partner, &own) }
    }

    /// The keys of the pair in an epoch, which cannot be computed without the group key.
    pub(crate) fn in_epoch(&self, key: &MixGroupKey) -> Self {
        Self { to: self.to.in_epoch(key), from: self.from.in_epoch(key) }
    }
}

/// `K_ab` or `K_abe`, the key of one direction, or of one direction in an epoch. Secret, wiped on
/// drop.
pub(crate) struct PairKey(SharedKey);

/// The exchange in which a slot is written.
#[derive(Clone, Copy)]
pub(crate) struct SlotWriteContext {
    pub(crate) epoch: u32,
    pub(crate) round: u64,
    /// The writer's nonce in this round.
    pub(crate) nonce: [u8; NONCE_LEN],
    /// Which of the writer's slots, in an exchange by broadcast. In an oblivious exchange there is
    /// one slot for each receiver in a round.
    pub(crate) slot: Option<u8>,
}

impl PairKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(SharedKey::new(key))
    }

    fn in_epoch(&self, key: &MixGroupKey) -> Self {
        Self::new(&Zeroizing::new(self.0.authenticate(&[b"sunder mix epoch 1", key.as_bytes()])))
    }

    /// The offset, among the writer's `slots` slots, of a message in this round.
    pub(crate) fn offset(&self, epoch: u32, round: u64, slots: usize) -> usize {
        let code = self.0.authenticate(&[b"slot", &epoch.to_be_bytes(), &round.to_be_bytes()]);
        let number = u64::from_be_bytes(*code.first_chunk().expect("a code has 32 bytes"));
        usize::try_from(number % slots as u64).expect("less than a usize")
    }

    /// Encrypts a slot, and overwrites its last bytes with the authenticator.
    pub(crate) fn seal(&self, at: SlotWriteContext, slot: &mut [u8]) {
        let (content, tag) = split(slot);
        let sealed =
            self.cipher(at).encrypt_inout_detached(&[0; 12].into(), &[], InOutBuf::from(content));
        tag.copy_from_slice(&sealed.expect("a slot is short"));
    }

    /// Decrypts a slot. Returns false if it was not sealed with this key in this exchange: the
    /// caller must then not use its bytes.
    pub(crate) fn open(&self, at: SlotWriteContext, slot: &mut [u8]) -> bool {
        let (content, tag) = split(slot);
        self.cipher(at)
            .decrypt_inout_detached(&[0; 12].into(), &[], InOutBuf::from(content), &(*tag).into())
            .is_ok()
    }

    fn cipher(&self, at: SlotWriteContext) -> ChaCha20Poly1305 {
        let (epoch, round) = (at.epoch.to_be_bytes(), at.round.to_be_bytes());
        let slot = at.slot.as_slice();
        let key = Zeroizing::new(self.0.authenticate(&[b"seal", &epoch, &round, &at.nonce, slot]));
        ChaCha20Poly1305::new((&*key).into())
    }
}

fn split(slot: &mut [u8]) -> (&mut [u8], &mut [u8; TAG_LEN]) {
    slot.split_last_chunk_mut().expect("a slot has at least 64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(number: u8) -> IdentitySecretKey {
        IdentitySecretKey::new(&[number; 32])
    }

    #[test]
    fn sealed_slots_open_only_with_the_key_of_the_pair() {
        let (alice, bob, carol) = (secret(1), secret(2), secret(3));
        let at = SlotWriteContext { epoch: 2, round: 3, nonce: [4; 16], slot: None };
        let mut slot = [5; 100];
        PairKeys::new(&alice, &bob.public()).to.seal(at, &mut slot);
        let opened = |keys: &PairKey, at, changed: Option<usize>| {
            let mut slot = slot;
            if let Some(byte) = changed {
                slot[byte] ^= 1;
            }
            keys.open(at, &mut slot).then_some(slot[..84].to_vec())
        };
        let keys = PairKeys::new(&bob, &alice.public());
        assert_eq!(opened(&keys.from, at, None), Some(vec![5; 84]));
        assert!((0..100).all(|byte| opened(&keys.from, at, Some(byte)).is_none()));
        assert_eq!(opened(&keys.to, at, None), None);
        assert_eq!(opened(&keys.from, SlotWriteContext { epoch: 3, ..at }, None), None);
        assert_eq!(opened(&keys.from, SlotWriteContext { round: 4, ..at }, None), None);
        assert_eq!(opened(&keys.from, SlotWriteContext { nonce: [5; 16], ..at }, None), None);
        assert_eq!(opened(&keys.from, SlotWriteContext { slot: Some(0), ..at }, None), None);
        for (own, partner) in [(&carol, &alice), (&carol, &bob), (&bob, &carol)] {
            let keys = PairKeys::new(own, &partner.public());
            assert_eq!(opened(&keys.from, at, None), None);
            assert_eq!(opened(&keys.to, at, None), None);
        }
    }

    #[test]
    fn slots_of_an_epoch_open_only_with_its_key_and_at_their_place() {
        let (alice, bob) = (secret(1), secret(2));
        let at = SlotWriteContext { epoch: 2, round: 3, nonce: [4; 16], slot: Some(1) };
        let keys = |own: &IdentitySecretKey, partner: &IdentitySecretKey, key: u8| {
            PairKeys::new(own, &partner.public()).in_epoch(&MixGroupKey::new([key; 32]))
        };
        let mut slot = [5; 100];
        keys(&alice, &bob, 9).to.seal(at, &mut slot);
        let opens = |keys: &PairKeys, at| keys.from.open(at, &mut { slot });
        assert!(opens(&keys(&bob, &alice, 9), at));
        assert!(!opens(&keys(&bob, &alice, 8), at), "the key of another epoch");
        assert!(!opens(&PairKeys::new(&bob, &alice.public()), at), "no key of an epoch");
        for slot in [Some(0), Some(2), None] {
            assert!(!opens(&keys(&bob, &alice, 9), SlotWriteContext { slot, ..at }), "{slot:?}");
        }
    }

    #[test]
    fn both_ends_agree_on_the_slot_and_every_slot_is_used() {
        let (alice, bob) = (secret(1), secret(2));
        let to = PairKeys::new(&alice, &bob.public()).to;
        let from = PairKeys::new(&bob, &alice.public()).from;
        let mut used = [0; 4];
        for round in 0..1000 {
            used[to.offset(1, round, 4)] += 1;
            assert_eq!(to.offset(1, round, 4), from.offset(1, round, 4));
        }
        assert!(used.iter().all(|&count| (170..330).contains(&count)), "{used:?}");
    }
}
