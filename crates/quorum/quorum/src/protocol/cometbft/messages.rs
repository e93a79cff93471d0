//! The messages of ABCI 2.0 and of CometBFT's remote signer, as far as they are used here. Field
//! numbers are those of CometBFT 0.38. Unknown fields of a received message are skipped.

use prost::{Message, Oneof};

/// A request of CometBFT to its application.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AbciRequest {
    #[prost(oneof = "AbciCall", tags = "1, 2, 3, 5, 6, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20")]
    pub(crate) call: Option<AbciCall>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AbciCall {
    #[prost(message, tag = "1")]
    Echo(AbciEcho),
    #[prost(message, tag = "2")]
    Flush(AbciEmpty),
    #[prost(message, tag = "3")]
    Info(AbciEmpty),
    #[prost(message, tag = "5")]
    InitChain(InitChainCall),
    #[prost(message, tag = "6")]
    Query(QueryCall),
    #[prost(message, tag = "8")]
    CheckTx(CheckTxCall),
    #[prost(message, tag = "11")]
    Commit(AbciEmpty),
    #[prost(message, tag = "12")]
    ListSnapshots(AbciEmpty),
    #[prost(message, tag = "13")]
    OfferSnapshot(AbciEmpty),
    #[prost(message, tag = "14")]
    LoadSnapshotChunk(AbciEmpty),
    #[prost(message, tag = "15")]
    ApplySnapshotChunk(AbciEmpty),
    #[prost(message, tag = "16")]
    PrepareProposal(PrepareProposalCall),
    #[prost(message, tag = "17")]
    ProcessProposal(BlockCall),
    #[prost(message, tag = "18")]
    ExtendVote(AbciEmpty),
    #[prost(message, tag = "19")]
    VerifyVoteExtension(AbciEmpty),
    #[prost(message, tag = "20")]
    FinalizeBlock(BlockCall),
}

/// A message whose fields do not matter.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AbciEmpty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AbciEcho {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitChainCall {
    #[prost(string, tag = "2")]
    pub(crate) chain_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryCall {
    #[prost(string, tag = "2")]
    pub(crate) path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckTxCall {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) tx: bytes::Bytes,
    /// 0 if the transaction is new, 1 if it is checked again after a block.
    #[prost(int32, tag = "2")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PrepareProposalCall {
    #[prost(int64, tag = "5")]
    pub(crate) height: i64,
}

/// A proposed or a decided block.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockCall {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) txs: Vec<bytes::Bytes>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) misbehavior: Vec<Misbehavior>,
    #[prost(int64, tag = "5")]
    pub(crate) height: i64,
}

/// Evidence that a validator has voted twice.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Misbehavior {
    #[prost(message, optional, tag = "2")]
    pub(crate) validator: Option<MisbehavingValidator>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MisbehavingValidator {
    /// The first 20 bytes of the SHA-256 of its public key.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) address: Vec<u8>,
}

/// The application's answer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AbciResponse {
    #[prost(
        oneof = "AbciAnswer",
        tags = "1, 2, 3, 4, 6, 7, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21"
    )]
    pub(crate) answer: Option<AbciAnswer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AbciAnswer {
    #[prost(message, tag = "1")]
    Exception(AbciEcho),
    #[prost(message, tag = "2")]
    Echo(AbciEcho),
    #[prost(message, tag = "3")]
    Flush(AbciEmpty),
    #[prost(message, tag = "4")]
    Info(InfoAnswer),
    #[prost(message, tag = "6")]
    InitChain(InitChainAnswer),
    #[prost(message, tag = "7")]
    Query(AbciCode),
    #[prost(message, tag = "9")]
    CheckTx(AbciCode),
    #[prost(message, tag = "12")]
    Commit(AbciEmpty),
    #[prost(message, tag = "13")]
    ListSnapshots(AbciEmpty),
    #[prost(message, tag = "14")]
    OfferSnapshot(AbciEmpty),
    #[prost(message, tag = "15")]
    LoadSnapshotChunk(AbciEmpty),
    #[prost(message, tag = "16")]
    ApplySnapshotChunk(AbciEmpty),
    #[prost(message, tag = "17")]
    PrepareProposal(PrepareProposalAnswer),
    #[prost(message, tag = "18")]
    ProcessProposal(ProcessProposalAnswer),
    #[prost(message, tag = "19")]
    ExtendVote(AbciEmpty),
    #[prost(message, tag = "20")]
    VerifyVoteExtension(AbciEmpty),
    #[prost(message, tag = "21")]
    FinalizeBlock(FinalizeBlockAnswer),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InfoAnswer {
    #[prost(string, tag = "1")]
    pub(crate) data: String,
    #[prost(int64, tag = "4")]
    pub(crate) last_block_height: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) last_block_app_hash: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitChainAnswer {
    #[prost(message, repeated, tag = "2")]
    pub(crate) validators: Vec<ValidatorUpdate>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) app_hash: Vec<u8>,
}

/// A result: 0 means success.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AbciCode {
    #[prost(uint32, tag = "1")]
    pub(crate) code: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PrepareProposalAnswer {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) txs: Vec<bytes::Bytes>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ProcessProposalAnswer {
    /// 1 to accept the block, 2 to reject it.
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FinalizeBlockAnswer {
    #[prost(message, repeated, tag = "2")]
    pub(crate) tx_results: Vec<AbciCode>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) validator_updates: Vec<ValidatorUpdate>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) app_hash: Vec<u8>,
}

/// A validator's new voting power. Without power, it is none any more.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValidatorUpdate {
    #[prost(message, required, tag = "1")]
    pub(crate) pub_key: ValidatorKey,
    #[prost(int64, tag = "2")]
    pub(crate) power: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValidatorKey {
    #[prost(oneof = "ValidatorKeyKind", tags = "1")]
    pub(crate) kind: Option<ValidatorKeyKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ValidatorKeyKind {
    #[prost(bytes = "vec", tag = "1")]
    Ed25519(Vec<u8>),
}

impl ValidatorKey {
    /// This Ed25519 key.
    pub(crate) fn ed25519(key: [u8; 32]) -> Self {
        Self { kind: Some(ValidatorKeyKind::Ed25519(key.to_vec())) }
    }
}

/// A message between CometBFT and the signer of its votes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignerMessage {
    #[prost(oneof = "SignerCall", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub(crate) call: Option<SignerCall>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum SignerCall {
    #[prost(message, tag = "1")]
    PublicKey(AbciEmpty),
    #[prost(message, tag = "2")]
    PublicKeyAnswer(PublicKeyAnswer),
    #[prost(message, tag = "3")]
    SignVote(SignVoteCall),
    #[prost(message, tag = "4")]
    SignedVote(SignedVoteAnswer),
    #[prost(message, tag = "5")]
    SignProposal(SignProposalCall),
    #[prost(message, tag = "6")]
    SignedProposal(SignedProposalAnswer),
    #[prost(message, tag = "7")]
    Ping(AbciEmpty),
    #[prost(message, tag = "8")]
    Pong(AbciEmpty),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PublicKeyAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) pub_key: Option<ValidatorKey>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignVoteCall {
    #[prost(message, optional, tag = "1")]
    pub(crate) vote: Option<EngineVote>,
    #[prost(string, tag = "2")]
    pub(crate) chain_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignedVoteAnswer {
    #[prost(message, required, tag = "1")]
    pub(crate) vote: EngineVote,
    #[prost(message, optional, tag = "2")]
    pub(crate) error: Option<SignerError>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignProposalCall {
    #[prost(message, optional, tag = "1")]
    pub(crate) proposal: Option<EngineProposal>,
    #[prost(string, tag = "2")]
    pub(crate) chain_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignedProposalAnswer {
    #[prost(message, required, tag = "1")]
    pub(crate) proposal: EngineProposal,
    #[prost(message, optional, tag = "2")]
    pub(crate) error: Option<SignerError>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignerError {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EngineVote {
    /// 1 for a prevote, 2 for a precommit.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(int64, tag = "2")]
    pub(crate) height: i64,
    #[prost(int32, tag = "3")]
    pub(crate) round: i32,
    #[prost(message, required, tag = "4")]
    pub(crate) block_id: BlockId,
    #[prost(message, required, tag = "5")]
    pub(crate) timestamp: Timestamp,
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) validator_address: Vec<u8>,
    #[prost(int32, tag = "7")]
    pub(crate) validator_index: i32,
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) signature: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EngineProposal {
    /// 32.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(int64, tag = "2")]
    pub(crate) height: i64,
    #[prost(int32, tag = "3")]
    pub(crate) round: i32,
    #[prost(int32, tag = "4")]
    pub(crate) pol_round: i32,
    #[prost(message, required, tag = "5")]
    pub(crate) block_id: BlockId,
    #[prost(message, required, tag = "6")]
    pub(crate) timestamp: Timestamp,
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) signature: Vec<u8>,
}

/// The hash of a block and of its parts. Empty for no block. In signed messages, the encoding is
/// the same.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockId {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) hash: Vec<u8>,
    #[prost(message, required, tag = "2")]
    pub(crate) parts: PartSetHeader,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartSetHeader {
    #[prost(uint32, tag = "1")]
    pub(crate) total: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) hash: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// What a vote's signature covers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignedVoteForm {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(sfixed64, tag = "2")]
    pub(crate) height: i64,
    #[prost(sfixed64, tag = "3")]
    pub(crate) round: i64,
    #[prost(message, optional, tag = "4")]
    pub(crate) block_id: Option<BlockId>,
    #[prost(message, required, tag = "5")]
    pub(crate) timestamp: Timestamp,
    #[prost(string, tag = "6")]
    pub(crate) chain_id: String,
}

/// What a proposal's signature covers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignedProposalForm {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(sfixed64, tag = "2")]
    pub(crate) height: i64,
    #[prost(sfixed64, tag = "3")]
    pub(crate) round: i64,
    #[prost(int64, tag = "4")]
    pub(crate) pol_round: i64,
    #[prost(message, optional, tag = "5")]
    pub(crate) block_id: Option<BlockId>,
    #[prost(message, required, tag = "6")]
    pub(crate) timestamp: Timestamp,
    #[prost(string, tag = "7")]
    pub(crate) chain_id: String,
}
