//! CometBFT's RPC, through its Unix socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::NodeAnnouncement;

/// The longest answer, in bytes.
const MAX_ANSWER_LEN: usize = 4 << 20;

/// The time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// CometBFT's RPC.
#[derive(Clone, Debug)]
pub(super) struct CometbftRpc(pub(super) PathBuf);

impl CometbftRpc {
    /// Adds a transaction to CometBFT's pool. Returns before it was checked.
    ///
    /// # Errors
    /// If CometBFT does not answer, or its pool is full.
    pub(super) async fn add_transaction(&self, transaction: &[u8]) -> io::Result<()> {
        let tx = Base64::encode_string(transaction);
        self.call("broadcast_tx_async", json!({ "tx": tx })).await.map(drop)
    }

    /// This server's own node.
    ///
    /// # Errors
    /// If CometBFT does not answer.
    pub(super) async fn node(&self) -> io::Result<NodeAnnouncement> {
        let status = self.call("status", json!({})).await?;
        let info = &status["node_info"];
        let port = info["listen_addr"].as_str().and_then(|it| it.rsplit(':').next()?.parse().ok());
        match (node_id(&info["id"]), port) {
            (Some(id), Some(port)) => Ok(NodeAnnouncement { id, port }),
            _ => Err(other("the status of CometBFT names no node")),
        }
    }

    /// The IDs of the nodes with which CometBFT is connected.
    ///
    /// # Errors
    /// If CometBFT does not answer.
    pub(super) async fn peers(&self) -> io::Result<Vec<[u8; 20]>> {
        let info = self.call("net_info", json!({})).await?;
        let peers = info["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(peers.iter().filter_map(|peer| node_id(&peer["node_info"]["id"])).collect())
    }

    /// Connects CometBFT with nodes, each as ID@HOST:PORT, and again when a connection ends.
    ///
    /// # Errors
    /// If CometBFT does not answer.
    pub(super) async fn dial(&self, nodes: &[String]) -> io::Result<()> {
        let params = json!({
            "peers": nodes, "persistent": true, "unconditional": true, "private": false
        });
        self.call("dial_peers", params).await.map(drop)
    }

    async fn call(&self, method: &str, params: Value) -> io::Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answered = timeout(CALL_TIMEOUT, self.exchange(body.to_string().into())).await;
        let body = answered.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let mut answer: Value = serde_json::from_slice(&body).map_err(io::Error::other)?;
        if let Some(error) = answer.get("error") {
            return Err(other(&format!("CometBFT refuses `{method}`: {error}")));
        }
        Ok(answer["result"].take())
    }

    async fn exchange(&self, body: Bytes) -> io::Result<Bytes> {
        let stream = UnixStream::connect(&self.0).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(io::Error::other)?;
        let request = Request::builder().method(Method::POST).uri("/").header(HOST, "localhost");
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(body));
        let request = request.map_err(io::Error::other)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let body = Limited::new(response.into_body(), MAX_ANSWER_LEN).collect().await;
            Ok(body.map_err(io::Error::other)?.to_bytes())
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(io::Error::other(error)),
            },
        }
    }
}

fn other(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

fn node_id(value: &Value) -> Option<[u8; 20]> {
    base16ct::lower::decode_vec(value.as_str()?).ok()?.try_into().ok()
}
