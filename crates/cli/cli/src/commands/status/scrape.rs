//! Serves metrics to Prometheus over HTTP.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use console::CommandFailure;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use service::accept::RoundRobinAcceptor;
use service::connection_limiter::ConnectionLimiter;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{ask_all, metrics};
use crate::checks::listeners::open_to_all;

/// The time within which a request must arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for a scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of concurrent scrapes.
const MAX_SCRAPES: usize = 16;

/// The maximum number of concurrent scrapes from one source.
const MAX_SCRAPES_OF_SOURCE: usize = 8;

/// The path of the metrics.
const PATH: &str = "/metrics";

/// The version of the text format.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Answers scrapes until the command is interrupted.
///
/// # Errors
/// If the address is not available.
pub(super) fn serve(address: SocketAddr) -> Result<(), CommandFailure> {
    if let Some(warning) = open_to_all("metrics", [address]) {
        console::warning(&warning);
    }
    service::runtime()?.block_on(async {
        let cannot = |error| CommandFailure::Failed(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        console::print_line(&format!("listening on {address}: http://{address}{PATH}"))?;
        let mut scrapes = ConnectionLimiter::new(MAX_SCRAPES, MAX_SCRAPES_OF_SOURCE);
        let (listeners, mut turn) = ([listener], RoundRobinAcceptor::default());
        loop {
            tokio::select! {
                (_, stream, peer) = turn.accept(&listeners) => {
                    scrapes.spawn(peer.ip(), answer(stream));
                }
                () = scrapes.join_next() => {}
            }
        }
    })
}

async fn answer(stream: TcpStream) {
    let service = service_fn(|request| async move {
        Ok::<_, Infallible>(match refusal(&request) {
            Some(refused) => refused,
            None => scrape().await,
        })
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT);
    // A client that disconnects will ask again.
    let _ = timeout(SCRAPE_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await;
}

/// The answer to a request that is refused.
fn refusal<T>(request: &Request<T>) -> Option<Response<Full<Bytes>>> {
    let refused = |status, why: &'static str| {
        let mut response = Response::new(Full::from(why));
        *response.status_mut() = status;
        Some(response)
    };
    if !names_an_address(request) {
        // A web page could resolve its own name to this address and read the answer.
        return refused(
            StatusCode::MISDIRECTED_REQUEST,
            "use an address, as in http://127.0.0.1:9100/metrics, or localhost\n",
        );
    }
    if request.uri().path() != PATH {
        return refused(StatusCode::NOT_FOUND, "there is only /metrics\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, "there is only GET\n")?;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    None
}

/// Whether the request's host is an address or `localhost`. Any other name may belong to an
/// attacker.
fn names_an_address<T>(request: &Request<T>) -> bool {
    let mut named = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    // A request to a proxy has the host also in its URI.
    [Some(&host), request.uri().authority()].into_iter().flatten().all(|authority| {
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        host.eq_ignore_ascii_case("localhost") || address.unwrap_or(host).parse::<IpAddr>().is_ok()
    })
}

async fn scrape() -> Response<Full<Bytes>> {
    // If no daemon runs, the answer is empty.
    let text = metrics(&ask_all().await.unwrap_or_default());
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, FORMAT);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, uri: &str, hosts: &[&str]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        refusal(&request.body(()).unwrap()).map(|response| response.status().as_u16())
    }

    #[test]
    fn only_metrics_are_answered_and_only_by_an_address() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9100",
            "[::1]:9100",
            "localhost:9100",
            "192.0.2.1",
            "LOCALHOST",
        ] {
            assert_eq!(status("GET", "/metrics", &[host]), None, "{host}");
        }
        assert_eq!(status("HEAD", "/metrics", &["127.0.0.1"]), None);
        for host in
            ["example.org", "127.0.0.1.example.org:9100", "localhost.example.org", "", "a b"]
        {
            assert_eq!(status("GET", "/metrics", &[host]), Some(421), "{host}");
        }
        assert_eq!(status("GET", "/metrics", &[]), Some(421));
        assert_eq!(status("GET", "/metrics", &["127.0.0.1", "127.0.0.1"]), Some(421));
        let by_proxy = "http://example.org/metrics";
        assert_eq!(status("GET", by_proxy, &["127.0.0.1"]), Some(421));
        for path in ["/", "/metrics/", "/metrics2", "/status"] {
            assert_eq!(status("GET", path, &["127.0.0.1"]), Some(404), "{path}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            assert_eq!(status(method, "/metrics", &["127.0.0.1"]), Some(405), "{method}");
        }
    }
}
