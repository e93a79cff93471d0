//! What fuzz targets do with the local API.

use std::sync::Arc;

use bytes::Bytes;
use service::http::HttpServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::server::{limits, serve};
use super::{
    ApiCaller, ApiEncoding, ApiPermissions, ApiRefusal, ApiRefusalKind, EpochWitnesses,
    LocalService, NodeHealth, PendingReview, RefreshStatus, RegisterResponse,
};
use crate::net::nodes::parse_nodes;
use crate::protocol::group::GroupKeyKind;
use crate::protocol::policy::{MessageDigest, check_message};

/// A service that refuses all that it can refuse.
struct Refusing;

fn refuse<T>(why: impl std::fmt::Display) -> Result<T, ApiRefusal> {
    Err(ApiRefusal::new(ApiRefusalKind::Forbidden, why))
}

impl LocalService for Refusing {
    async fn register(&self, message: Bytes, _: ApiCaller) -> Result<RegisterResponse, ApiRefusal> {
        check_message(&message, GroupKeyKind::Ed25519).or_else(refuse)?;
        Ok(RegisterResponse { digest: String::new(), new: true, until: String::new() })
    }

    async fn withdraw(&self, _: MessageDigest, _: ApiCaller) -> Result<(), ApiRefusal> {
        refuse("not\nregistered")
    }

    async fn registered_message(&self, _: MessageDigest) -> Result<Vec<u8>, ApiRefusal> {
        refuse("not\nregistered")
    }

    async fn pending(&self) -> Result<PendingReview, ApiRefusal> {
        Ok(PendingReview::default())
    }

    async fn withdraw_approval(&self, _: ApiCaller) -> Result<(), ApiRefusal> {
        refuse("none")
    }

    fn bundle(&self) -> Result<Vec<u8>, ApiRefusal> {
        refuse("none")
    }

    async fn sign(
        &self,
        _: Bytes,
        _: Option<ApiEncoding>,
        _: ApiCaller,
    ) -> Result<Vec<u8>, ApiRefusal> {
        refuse("not\nregistered")
    }

    async fn command(&self, _: Bytes, _: ApiCaller) -> Result<Vec<u8>, ApiRefusal> {
        refuse("no service")
    }

    async fn start_refresh(
        &self,
        nodes: String,
        _: ApiCaller,
    ) -> Result<RefreshStatus, ApiRefusal> {
        match parse_nodes(&nodes) {
            Ok(_) => refuse("no member"),
            Err(problems) => refuse(problems.first().in_one_line(&nodes)),
        }
    }

    async fn cancel_refresh(&self, _: ApiCaller) -> Result<RefreshStatus, ApiRefusal> {
        refuse("none")
    }

    fn refresh(&self) -> Option<RefreshStatus> {
        None
    }

    fn witnesses(&self) -> Result<EpochWitnesses, ApiRefusal> {
        refuse("none")
    }

    fn public_key(&self) -> Result<String, ApiRefusal> {
        refuse("none")
    }

    fn headers(&self) -> Result<Vec<u8>, ApiRefusal> {
        refuse("none")
    }

    fn health(&self) -> NodeHealth {
        let problem = "none".to_owned();
        let (epoch, height, waiting_s, connected, needed) = (None, 0, None, 0, 1);
        let (ok, problem_s) = (false, None);
        let warning = String::new();
        NodeHealth { ok, problem, problem_s, warning, epoch, height, waiting_s, connected, needed }
    }

    fn refused(&self, request: &'static str, reason: &str, _: ApiCaller) {
        assert!(!request.is_empty() && !reason.contains('\n'));
    }
}

/// A local user sends these bytes; returns what is answered. Every refusal says why in one line.
///
/// # Panics
/// If one does not.
pub fn request(bytes: &[u8]) -> Vec<u8> {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let answers = runtime.block_on(async {
        let (mut user, server) = duplex(1 << 20);
        let serving = tokio::spawn(async {
            let caller = (ApiCaller::default(), ApiPermissions::ALL);
            serve(&HttpServer::new(limits(1)), server, caller, Arc::new(Refusing)).await;
        });
        let (mut reader, mut writer) = tokio::io::split(&mut user);
        let mut answers = Vec::new();
        let write = async {
            // The server closes after what it cannot read.
            let _ = writer.write_all(bytes).await;
            // A server does not answer who has gone: until then it does all that it can.
            for _ in 0..100 {
                yield_now().await;
            }
            let _ = writer.shutdown().await;
        };
        let ((), read) = tokio::join!(write, reader.read_to_end(&mut answers));
        read.expect("memory");
        serving.await.expect("it does not panic");
        answers
    });
    for answer in String::from_utf8_lossy(&answers).split("HTTP/1.1 ").skip(1) {
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer's head");
        if head.starts_with(['4', '5']) && head.contains("application/json") {
            let is_health = body.contains("\"problem\"");
            assert!(is_health || body.starts_with("{\"error\":\""), "{answer:?}");
            assert_eq!(body.lines().count(), 1, "{answer:?}");
        }
    }
    answers
}

/// Requests to change.
pub fn examples() -> Vec<Vec<u8>> {
    let mut examples = Vec::new();
    let of_message = format!("/v1/messages/{}", "0a".repeat(32));
    for (method, path, body) in [
        ("POST", "/v1/messages", "message"),
        ("POST", "/v1/messages", "SNDR-QUORUM-HDR\0"),
        ("POST", "/v1/signatures?encoding=pss", "message"),
        ("POST", "/v1/refreshes", "[[server]]\nidentity = \"00\"\naddress = \"192.0.2.1:1\"\n"),
        ("GET", "/v1/messages/00", ""),
        ("DELETE", &of_message[..], ""),
        ("DELETE", "/v1/refreshes/approval", ""),
        ("GET", "/v1/pending", ""),
        ("GET", "/v1/health", ""),
        ("GET", "/v1/headers", ""),
        ("PUT", "/v1/nothing", "x"),
    ] {
        let len = body.len();
        let text =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n{body}");
        examples.push(text.into_bytes());
    }
    let chunked = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\n\r\n";
    examples.push(chunked.into());
    examples
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;
    use crate::fuzzing::changed;

    #[test]
    fn changed_requests_are_answered_or_refused_in_one_line() {
        let examples = examples();
        for example in &examples {
            assert!(request(example).starts_with(b"HTTP/1.1 "));
        }
        sim::run_seeds(400, |seed| {
            let mut random = SeededRng::new(seed);
            let mut example = || {
                let example = &examples[random.index(examples.len())];
                changed(example, &mut random)
            };
            request(&[example(), example()].concat());
        });
    }
}
