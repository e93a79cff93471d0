//! The files of a quorum that people hand over: share files of a ceremony, `NODES.toml`, the
//! configuration of a server, and the chain of headers that `verify-epochs` follows.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use keys::RsaPublicKey;
use libfuzzer_sys::fuzz_target;
use quorum::QuorumShareFile;
use quorum::fuzzing::{share_files, with_digest};
use quorum::group::{GroupHeader, verify_chain};
use quorum::node::QuorumNodeConfig;
use quorum::nodes::parse_nodes;
use quorum::server::{GroupStart, SignedGroupHeader};

struct Examples {
    shares: Vec<Vec<u8>>,
    chain: Vec<u8>,
    nodes: String,
    public: RsaPublicKey,
}

static EXAMPLES: LazyLock<Examples> = LazyLock::new(|| {
    let files = share_files();
    let first = files[0].header.clone();
    let mut second = first.clone();
    (second.epoch, second.run, second.previous) = (2, 1, first.digest());
    let signed = |header: GroupHeader| SignedGroupHeader { header, signature: vec![1; 128] };
    let mut start = GroupStart::first(first.clone(), files[0].witnesses.clone());
    start.chain = vec![signed(first), signed(second)];
    let server = |member: &quorum::group::QuorumMember| {
        format!(
            "[[server]]\nidentity = \"{}\"\naddress = \"{}\"\n",
            member.identity, member.address
        )
    };
    Examples {
        chain: start.chain_to_bytes(),
        nodes: files[0].header.group.members().iter().map(server).collect(),
        public: files[0].public().clone(),
        shares: files.iter().map(|file| file.to_bytes().to_vec()).collect(),
    }
});

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    share: Changes,
    chain: Changes,
    nodes: Changes,
    config: Changes,
}

const CONFIG: &str = "identity = \"i\"\npublic_key = \"p\"\nstore = \"s\"\nmaster_key = \"m\"\n\
    share = \"x\"\nlisten = [\"192.0.2.1:6530\"]\nsocket = \"q.sock\"\nneed_delay_s = 3\n\
    [[rule]]\nprefix = \"release \"\nmax_len = 20\n[[rule]]\nformat = \"x509-cert\"\n\
    issuer = \"CN=a\"\nsubject = \"CN=*\"\nnames = [\"*.a\"]\nmax_validity = \"1d\"\n\
    [[rule]]\nformat = \"jwt\"\nfields = [\"a=*\", \"b?=1\"]\nmax_validity = \"1h\"\n";

fuzz_target!(|input: Input| {
    for bytes in [&input.any, &input.share.of_one(&EXAMPLES.shares)] {
        // Also with a digest that is right.
        for bytes in [bytes.clone(), with_digest(bytes)] {
            if let Ok(file) = QuorumShareFile::parse(&bytes) {
                assert_eq!(&file.to_bytes()[..], bytes);
            }
        }
    }
    for bytes in [&input.any, &input.chain.of(&EXAMPLES.chain)] {
        chain(bytes);
    }
    for bytes in [&input.any, &input.nodes.of(EXAMPLES.nodes.as_bytes())] {
        if let Ok(text) = str::from_utf8(bytes) {
            match parse_nodes(text) {
                Ok(group) => {
                    let voting = vec![None; group.members().len()];
                    let header = GroupHeader::first(group, voting, EXAMPLES_WITNESSES, None);
                    assert_eq!(GroupHeader::parse(&header.to_bytes()), Ok(header));
                }
                Err(problems) => {
                    assert!(!problems.first().in_one_line(text).contains('\n'));
                    problems.iter().for_each(|it| assert!(!it.to_string().contains('\n')));
                }
            }
        }
    }
    if let Ok(text) = String::from_utf8(input.config.of(CONFIG.as_bytes()))
        && let Err(problems) = QuorumNodeConfig::from_toml(&text)
    {
        problems.iter().for_each(|it| assert!(!it.to_string().contains('\n')));
    }
});

const EXAMPLES_WITNESSES: quorum::Sha256Digest = quorum::Sha256Digest([5; 32]);

fn chain(bytes: &[u8]) {
    let Ok(chain) = GroupStart::parse_chain(bytes) else { return };
    let headers: Vec<Vec<u8>> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = || headers.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    // Nobody has the key.
    assert!(verify_chain(pairs(), |text, sig| EXAMPLES.public.verify(text, sig)).is_err());
    let followed = verify_chain(pairs(), |_, _| true);
    if let Ok(last) = followed {
        assert_eq!(last.epoch, chain.len() as u64);
    }
    let witnesses = Vec::new();
    let start = GroupStart { chain, refresh: None, height: quorum::log::Height(0), witnesses };
    assert_eq!(start.chain_to_bytes(), bytes);
}
