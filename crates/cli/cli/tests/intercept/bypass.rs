//! Intercepted connections to networks in `bypass` leave directly, and all others over the
//! channels.

use crate::captures::{assert_hidden, secret};
use crate::programs::start_nginx;
use crate::topology::Topology;

pub(crate) fn only_listed_networks_leave_directly() {
    let topology = Topology::new();
    let (document, public) = (secret(300_000), secret(30_000));
    topology.write("document", &document);
    topology.write("public", &public);
    let nginx = start_nginx(&topology, 80, "listen 80; listen [::]:80;");
    let [direct, other] = ["a", "b"].map(|link| topology.v4("server", link));
    let by_v6 = topology.v6("server", "a");
    let settings = format!("intercept = \"tcp dport 80\"\nbypass = [\"{direct}/32:80\"]");
    // The server does not allow the address that is bypassed.
    let allow = format!("[\"{other}:80\", \"[{by_v6}]:80\"]");
    let (server, proxy) = (topology.serve(&allow), topology.proxy(&settings));
    assert!(topology.fetch("client", direct.into(), "public").unwrap() == public);
    proxy.wait_for("connected directly", 1);
    for address in [other.into(), by_v6.into()] {
        assert!(topology.fetch("client", address, "document").unwrap() == document, "{address}");
    }
    proxy.wait_for("stream finished", 2);
    assert_eq!(proxy.log().matches("connected directly").count(), 1);
    drop((nginx, proxy, server));
    let captures = topology.captures();
    let is_seen = |capture: &Vec<u8>| capture.windows(64).any(|bytes| bytes == &public[..64]);
    assert!(is_seen(&captures[0]), "what is bypassed is in the clear");
    assert_hidden(&captures, &document);
}
