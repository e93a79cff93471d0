//! IPv6 outside and inside the tunnel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use crate::pair::{Channel, PORT, Pair, SERVER, THREE_LINKS, few_lost, in_one_of_three, network};
use crate::stream::{Stream, StreamRate};

/// The server's address in the tunnel.
const SERVER_6: &str = "fd09::1";

pub(crate) fn a_tunnel_over_ipv6_carries_both() {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        eprintln!("skipped: this kernel has no IPv6");
        return;
    }
    let with = |host: &str, text: &str| text.replace(host, &format!("{host}\nipv6 = true"));
    let network = network(&with("[hosts.client]", &with("[hosts.server]", THREE_LINKS)));
    let channel = |link: &str| {
        let address = format!("[fd00::{}]:{PORT}", network.address("server", link).unwrap());
        let server = address.parse().unwrap();
        Channel::new(server, server)
    };
    let channels = ["a", "b", "c"].map(channel);
    let pair = Pair::start(network, "kappa = 2\nmu = 3", &channels);
    let (client, server) = (pair.host("client"), pair.host("server"));
    for address in [SERVER_6, SERVER] {
        let stream = Stream::start(client, server, address, StreamRate::LIGHT);
        stream.wait_for(100);
        in_one_of_three(|| {
            let begin = stream.now();
            stream.wait_for(300);
            let (sent, lost) = stream.lost(begin, stream.now());
            few_lost(sent, lost, 20)
        });
        assert_eq!(stream.wrong(), 0);
    }
    // Enough data for superpackets.
    let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(4 << 20).collect();
    let address: SocketAddr = format!("[{SERVER_6}]:9001").parse().unwrap();
    let listener = server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut sender = client.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let mut arrived = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&bytes).unwrap();
            drop(sender);
        });
        listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
    });
    assert!(arrived == bytes, "the bytes have changed");
}
