//! A web server behind `sunder serve` learns the addresses of clients by the PROXY protocol.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;

use super::processes::{Service, WAIT_TIMEOUT};
use super::service::{curl, fetched};

/// nginx that expects the header and logs the address in it; killed when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    files: TempDir,
}

impl Nginx {
    /// Starts it. `None`, after a message, if it is not installed.
    fn start() -> Option<Self> {
        let program = "/usr/sbin/nginx";
        if !Path::new(program).exists() {
            eprintln!("skipped: nginx is not installed");
            return None;
        }
        let files = TempDir::new().unwrap();
        let place = files.path().display();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "daemon off; master_process off; error_log {place}/error.log; pid {place}/nginx.pid;\n\
             events {{}}\n\
             http {{\n\
             log_format client '$proxy_protocol_addr -> $proxy_protocol_server_addr:\
             $proxy_protocol_server_port $status';\n\
             access_log {place}/access.log client;\n\
             client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
             fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi;\n\
             scgi_temp_path {place}/scgi;\n\
             server {{ listen {address} proxy_protocol; location / {{ return 200 'hello\\n'; }} }}\n\
             }}\n"
        );
        let file = files.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(files.path()).arg("-c").arg(&file).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        Some(Self { child, address, files })
    }

    /// Checks that its log has these lines and no others. It writes a line after its answer.
    fn assert_log(&self, expected: &[String]) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let text = fs::read_to_string(self.files.path().join("access.log")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if lines.len() >= expected.len() || Instant::now() > deadline {
                assert_eq!(lines, expected);
                return;
            }
            thread::yield_now();
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nginx_logs_the_addresses_that_the_proxy_has_seen() {
    let Some(nginx) = Nginx::start() else { return };
    let service = nginx.address;
    let serve = format!(
        "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\"]\nallow = [\"{service}\"]\n\
         proxy_protocol = [\"{service}\"]\n"
    );
    let server = Service::start("serve", &serve, 2);
    let proxy = |setting: &str| {
        let channels = server.channels();
        let config = format!(
            "socks = \"127.0.0.1:0\"\n{setting}[[forward]]\nlisten = \"127.0.0.1:0\"\n\
             target = \"{service}\"\n{channels}"
        );
        Service::start("proxy", &config, 2)
    };
    let stating = proxy("send_client_address = true\n");
    let [socks, forward] = [0, 1].map(|listener| stating.address(listener).to_string());
    let retries = ["--retry", "60", "--retry-all-errors", "--retry-max-time", "60"];
    let url = format!("http://{forward}/");
    let by_forward = curl(retries.iter().chain(&["--interface", "127.0.0.77", &url])).output();
    assert_eq!(fetched(&by_forward.unwrap()), b"hello\n");
    let url = format!("http://{service}/");
    let by_socks = curl(["--interface", "127.0.0.78", "--socks5-hostname", &socks, &url]).output();
    assert_eq!(fetched(&by_socks.unwrap()), b"hello\n");
    let lines = [77, 78].map(|host| format!("127.0.0.{host} -> {service} 200"));
    nginx.assert_log(&lines);

    // A header of the application is part of its request, and a wrong one.
    let mut forger = TcpStream::connect(&forward).unwrap();
    forger.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n\r\n").unwrap();
    let mut answer = String::new();
    forger.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("400 Bad Request"), "{answer}");
    let mut lines = lines.to_vec();
    lines.push(format!("127.0.0.1 -> {service} 400"));
    nginx.assert_log(&lines);

    // Without an address, the service would take the client for the server's own host.
    let silent = proxy("");
    let url = format!("http://{}/", silent.address(1));
    assert!(!curl([&url]).output().unwrap().status.success());
    server.wait_for("the proxy does not state its client's address");
    silent.wait_for("set send_client_address = true in the proxy's configuration");
    nginx.assert_log(&lines);
}

#[test]
fn a_service_without_the_header_gets_none() {
    let web = super::processes::web_server(b"hello".to_vec(), 5);
    let server = Service::server(2, &web.to_string());
    let channels = server.channels();
    let config = format!("socks = \"127.0.0.1:0\"\nsend_client_address = true\n{channels}");
    let proxy = Service::start("proxy", &config, 1);
    let (socks, url) = (proxy.address(0).to_string(), format!("http://{web}/"));
    assert_eq!(fetched(&curl(["--socks5-hostname", &socks, &url]).output().unwrap()), b"hello");
}
