//! Protocols that are not intercepted, QUIC and DNS, are refused if that is configured.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::captures::datagrams;
use crate::interruption::uninterrupted;
use crate::matrix::{CELLS, Cell, Kind, Matrix, PATIENCE, SETTINGS, TIMEOUT, listen};
use crate::programs::start_nginx;
use crate::topology::Topology;

const QUIC: u16 = 443;

const DNS: u16 = 53;

/// How long to wait for an answer.
fn limit(is_refused: bool) -> Duration {
    if is_refused { TIMEOUT } else { PATIENCE }
}

/// Sends a datagram to the server, and waits for the answer or the refusal.
fn is_answered(matrix: &Matrix, cell: Cell, port: u16, limit: Duration) -> bool {
    let server: SocketAddr = (matrix.address(cell), port).into();
    let any: SocketAddr = if server.is_ipv6() {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        "0.0.0.0:0".parse().unwrap()
    };
    let exchange = || {
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(limit))?;
        socket.connect(server)?;
        socket.send(b"asked")?;
        uninterrupted(|| socket.recv(&mut [0; 8]))
    };
    matrix.topology.host(cell.0).run(exchange).unwrap().is_ok()
}

/// A service that answers each datagram from the address that it was sent to.
fn echo(matrix: &Matrix, port: u16) {
    for cell in CELLS {
        let address: SocketAddr = (matrix.address(cell), port).into();
        let bind = || UdpSocket::bind(address);
        let socket = matrix.topology.host("server").run(bind).unwrap().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 8];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
    }
}

fn refused_with(setting: &str, refused: &[u16]) {
    let matrix = Matrix::new();
    echo(&matrix, QUIC);
    echo(&matrix, DNS);
    let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, DNS).into();
    let host = matrix.topology.host("server");
    let _by_tcp: TcpListener = host.run(|| listen(any, Kind::Both)).unwrap().unwrap();
    let proxy = matrix.topology.proxy(&format!("{SETTINGS}\n{setting}"));
    let warning = "UDP leaves in the clear";
    assert_eq!(proxy.log().contains(warning), setting.is_empty(), "{}", proxy.log());
    for cell in CELLS {
        for port in [QUIC, DNS] {
            let is_refused = refused.contains(&port);
            let is_answered = is_answered(&matrix, cell, port, limit(is_refused));
            assert_eq!(is_answered, !is_refused, "{setting} {port}");
        }
        let server: SocketAddr = (matrix.address(cell), DNS).into();
        let is_refused = refused.contains(&DNS);
        let connect = || TcpStream::connect_timeout(&server, limit(is_refused));
        let connected = matrix.topology.host(cell.0).run(connect).unwrap();
        assert_eq!(connected.is_ok(), !is_refused, "{setting}");
        // What is intercepted still is.
        matrix.connect_within(cell, PATIENCE).unwrap();
    }
    let captures = matrix.topology.captures();
    for port in [QUIC, DNS] {
        let expected = if refused.contains(&port) { 0 } else { CELLS.len() };
        assert_eq!(datagrams(&captures, port), expected, "{setting} {port}");
    }
}

pub(crate) fn quic_and_dns_leave_with_a_warning() {
    refused_with("", &[]);
}

pub(crate) fn quic_is_refused() {
    refused_with("intercept_refuse = [\"quic\"]", &[QUIC]);
}

pub(crate) fn quic_and_dns_are_refused() {
    refused_with("intercept_refuse = [\"quic\", \"dns\"]", &[QUIC, DNS]);
}

/// The page of a server that offers HTTP/3. Its second part is fetched when the offer is known.
const PAGE: &str = "<html><body><p>waiting</p><script>
const ask = (i) => fetch('/part?' + i).then((answer) => answer.text());
const pause = () => new Promise((done) => setTimeout(done, 300));
ask(1).then(pause).then(() => ask(2)).then(pause).then(() => ask(3)).then((text) => {
  document.querySelector('p').textContent = 'answered: ' + text;
});
</script></body></html>";

/// Chromium is offered HTTP/3 (`Alt-Svc`), and uses TCP where UDP is refused.
pub(crate) fn chromium_uses_tcp_instead_of_quic() {
    if !has_program("chromium") || !has_program("openssl") {
        println!("skipped: chromium or openssl is not installed");
        return;
    }
    for is_refused in [false, true] {
        let topology = Topology::new();
        let _nginx = offering_http3(&topology);
        let _server = topology.serve("[\"0.0.0.0/0:443\"]");
        let refused = if is_refused { "[\"quic\", \"dns\"]" } else { "[]" };
        let settings = format!("intercept = \"tcp dport 443\"\nintercept_refuse = {refused}");
        let _proxy = topology.proxy(&settings);
        let page = browse(&topology);
        assert!(page.contains("answered: part"), "{page}");
        let sent = datagrams(&topology.captures(), QUIC);
        println!("chromium: refused: {is_refused}, datagrams to port 443: {sent}");
        // Without the refusal, the browser tries HTTP/3.
        assert_eq!(sent == 0, is_refused);
    }
}

pub(crate) fn has_program(name: &str) -> bool {
    fs::exists(format!("/usr/bin/{name}")).unwrap()
}

/// A web server by TLS at port 443 of the server, whose answers offer HTTP/3 at the same port.
pub(crate) fn offering_http3(topology: &Topology) -> crate::topology::Program {
    let (key, certificate) = (topology.path("key"), topology.path("certificate"));
    let address = format!("subjectAltName=IP:{}", topology.v4("server", "a"));
    let arguments =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=a"];
    let files = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
    topology.ask("server", "openssl", &[&arguments[..], &files, &["-addext", &address]].concat());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    topology.write("index.html", PAGE);
    topology.write("part", "part");
    let files = topology.path("");
    let files = files.display();
    let settings = format!(
        "listen 443 ssl http2; ssl_certificate {files}/certificate;\n\
         ssl_certificate_key {files}/key; keepalive_timeout 0;\n\
         add_header Alt-Svc 'h3=\":443\"; ma=86400'; add_header Cache-Control no-store;"
    );
    start_nginx(topology, 443, &settings)
}

/// The page as Chromium shows it in the end.
pub(crate) fn browse(topology: &Topology) -> String {
    // Of a certificate that it does not know, it accepts no offer.
    let spki = "openssl x509 -in $0 -pubkey -noout | openssl pkey -pubin -outform der \
                | openssl dgst -sha256 -binary | openssl base64";
    let certificate = topology.path("certificate");
    let spki = topology.ask("client", "sh", &["-c", spki, certificate.to_str().unwrap()]);
    let profile = topology.path("profile");
    let own = [
        format!("--user-data-dir={}", profile.display()),
        format!("--ignore-certificate-errors-spki-list={}", spki.trim()),
        format!("https://{}/index.html", topology.v4("server", "a")),
    ];
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-quic",
        "--virtual-time-budget=20000",
        "--timeout=30000",
        "--dump-dom",
    ];
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let output = topology.run("client", "chromium", &[&arguments[..], &own].concat());
    String::from_utf8_lossy(&output.stdout).into_owned()
}
