//! The chain of a group: its name and its genesis document, which follow from the group's key.

use base16ct::HexDisplay;

use crate::protocol::wire::Sha256Digest;

/// The largest block, in bytes: a value of the log, and what CometBFT adds.
const MAX_BLOCK_BYTES: u64 = 4 << 20;

/// The name of the chain, of at most 50 bytes: from the SHA-256 of the group's public key.
pub(crate) fn chain_id(key: Sha256Digest) -> String {
    format!("sunder-quorum-{:x}", HexDisplay(&key.0[..16]))
}

/// CometBFT's genesis document. The servers of the first epoch are not in it: the application names
/// them, which knows them from the header of that epoch.
pub(crate) fn genesis(key: Sha256Digest) -> String {
    let document = serde_json::json!({
        "genesis_time": "2026-01-01T00:00:00Z",
        "chain_id": chain_id(key),
        "initial_height": "1",
        "consensus_params": {
            "block": { "max_bytes": MAX_BLOCK_BYTES.to_string(), "max_gas": "-1" },
            "evidence": {
                "max_age_num_blocks": "100000",
                "max_age_duration": "172800000000000",
                "max_bytes": "65536"
            },
            "validator": { "pub_key_types": ["ed25519"] },
            "version": { "app": "0" },
            "abci": { "vote_extensions_enable_height": "0" }
        },
        "validators": [],
        "app_hash": ""
    });
    format!("{document:#}\n")
}
