//! The messages for fixed seeds. A change of the wire format changes a line here.

use blocks::Block;
use sha2::{Digest as _, Sha256};
use sunder_ot::base::{naor_pinkas, naor_pinkas_modp, ristretto, two_lock};
use sunder_ot::extension::{OtReceiverSetUp, OtSenderSetUp};

use crate::base::KEY;
use crate::extension::{OFFSET, extensions};

/// The first bytes of the hash of a message.
fn hash(message: &[u8]) -> String {
    let hash = Sha256::digest(message);
    format!("{:016x}", u64::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes")))
}

/// A name, the lengths of the messages in the order in which they are sent, and their hashes.
fn line(name: &str, messages: &[&[u8]]) -> String {
    let messages: Vec<String> =
        messages.iter().map(|message| format!("{} {}", message.len(), hash(message))).collect();
    format!("{name}: {}", messages.join(", "))
}

#[test]
fn the_bytes_on_the_wire_are_those_of_the_last_version() {
    let [seed, other] = [1, 2].map(Block::from);
    let choices = [0x5a, 0x0f];
    let mut lines = Vec::new();

    let first = ristretto::RistrettoOtSender::new(seed).1;
    let second = ristretto::RistrettoOtReceiver::new(other, &choices, 16).unwrap().1;
    lines.push(line("Ristretto", &[&first, &second]));

    let first = naor_pinkas::NaorPinkasSender::new(seed).1;
    let second = naor_pinkas::receive(other, &choices, 16, &first).unwrap().1;
    lines.push(line("Naor-Pinkas", &[&first, &second]));

    for group in naor_pinkas_modp::ModpGroup::ALL {
        let first = naor_pinkas_modp::NaorPinkasModpSender::new(group, seed).1;
        let second = naor_pinkas_modp::receive(group, other, &choices, 16, &first).unwrap().1;
        lines.push(line(&format!("Naor-Pinkas, {group:?}"), &[&first, &second]));
    }

    let (sender, first) = two_lock::TwoLockSender::new(&KEY, seed, 16);
    let second =
        two_lock::TwoLockReceiver::new(KEY.modulus_len(), other, &choices, 16, &first).unwrap().1;
    let third = sender.receive(&second).unwrap().1;
    lines.push(line("two-lock", &[&first, &second, &third]));

    for extension in extensions() {
        let first = OtSenderSetUp::new(extension, Block::from(OFFSET), seed).1;
        let (mut receiver, reply) = OtReceiverSetUp::new(extension, other).receive(&first).unwrap();
        let mut extended = Vec::new();
        receiver.extend(&[0x5a; 1125], &mut vec![Block::ZERO; 9000], &mut extended).unwrap();
        let name = format!("{:?}, {:?}", extension.kind, extension.security);
        lines.push(line(&name, &[&first, &reply, &extended]));
    }
    assert_eq!(lines.join("\n"), EXPECTED.trim());
}

const EXPECTED: &str = "
Ristretto: 32 6dd46a6f763c8250, 528 06ed6b4c77798c4f
Naor-Pinkas: 64 adff5e5a3883d1db, 512 cd283941f9fc9853
Naor-Pinkas, Modp2048: 512 df554a838e385965, 4096 8cdbba80a7d1d4c8
Naor-Pinkas, Modp1024: 256 6d83e033c3fce2c7, 2048 954b72d6659d95b9
Naor-Pinkas, Modp1024Short: 256 1a64c4e46e0797f0, 2048 446447b877560eed
two-lock: 8448 87079a4c1fb76abd, 4096 5a8e458e24a523a3, 4096 5578e0901cf88e50
Iknp, SemiHonest: 4112 82ae3ca750ed8ad8, 48 5041980f6968affa, 145408 fe8a23245e3c334f
Iknp, MaliciousReceiver: 4112 82ae3ca750ed8ad8, 48 5041980f6968affa, 153632 3aa1ee253027df88
SoftSpoken2, SemiHonest: 4112 82ae3ca750ed8ad8, 2096 c44834468a3ee51d, 72704 cc7c7233e163d03e
SoftSpoken2, MaliciousReceiver: 4112 82ae3ca750ed8ad8, 6192 ccca2458f1b649da, 78880 604da4310f068336
SoftSpoken4, SemiHonest: 4112 82ae3ca750ed8ad8, 3120 e10ac4e2a216a0d0, 36352 fc9eb690ae925227
SoftSpoken4, MaliciousReceiver: 4112 82ae3ca750ed8ad8, 5168 5ace72a74d6225f9, 41504 1358995dec79da4f
SoftSpoken8, SemiHonest: 4112 82ae3ca750ed8ad8, 3632 f1c681803c551095, 18176 88a8a98f20d4ac11
SoftSpoken8, MaliciousReceiver: 4112 82ae3ca750ed8ad8, 4656 f0afa3fe5b5d8c7b, 22816 48a4cb5803504741
";
