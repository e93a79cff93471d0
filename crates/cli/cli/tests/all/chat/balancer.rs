//! Two proxies behind a load balancer, with the guide's configurations of nginx and `HAProxy`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::members::{Member, Proxy, Room};
use crate::common::{free_address, free_port};

const GUIDE: &str = include_str!("../../../../../../docs/guides/chat-operation.md");

/// The module of nginx, and how it is loaded where nothing else does.
const NGINX_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The groups of the guide, in the order of their ports, each with three members.
const GROUPS: [(&str, [&str; 3]); 3] = [
    ("friends", ["alice", "bob", "carol"]),
    ("office", ["dave", "erin", "frank"]),
    ("family", ["grace", "heidi", "ivan"]),
];

#[derive(Clone, Copy, PartialEq)]
enum BalancerProgram {
    Nginx,
    HaProxy,
}

/// A load balancer that runs, stopped when dropped.
struct Balancer {
    program: BalancerProgram,
    place: TempDir,
    config: String,
    child: Child,
}

impl BalancerProgram {
    /// Where it is. `None`, after a message, if it is not installed.
    fn path(self) -> Option<&'static str> {
        let (path, also, package) = match self {
            Self::Nginx => ("/usr/sbin/nginx", NGINX_MODULE, "nginx-light and libnginx-mod-stream"),
            Self::HaProxy => ("/usr/sbin/haproxy", "/", "haproxy"),
        };
        let is_there = Path::new(path).exists() && Path::new(also).exists();
        if !is_there {
            eprintln!("skipped: {path} is not installed with all of {package}; see `make setup`");
        }
        is_there.then_some(path)
    }

    /// The guide's configuration with these addresses of proxies, and ports on this host.
    fn config(self, proxies: [SocketAddr; 2], ports: [u16; 3]) -> String {
        let language = if self == Self::Nginx { "nginx" } else { "haproxy" };
        let mut config = GUIDE.split(&format!("```{language}\n")).nth(1).unwrap();
        config = config.split("```").next().unwrap();
        let mut config = config.to_owned();
        for (host, proxy) in ["192.0.2.21:6700", "192.0.2.22:6700"].iter().zip(proxies) {
            assert!(config.contains(host));
            config = config.replace(host, &proxy.to_string());
        }
        for (port, free) in ["6701", "6702", "6703"].iter().zip(ports) {
            let [listen, bind] = [format!("listen {port}"), format!("bind :{port}")];
            assert!(config.contains(&listen) || config.contains(&bind));
            config = config.replace(&listen, &format!("listen 127.0.0.1:{free}"));
            config = config.replace(&bind, &format!("bind 127.0.0.1:{free}"));
        }
        config
    }

    /// What a host's configuration has besides.
    fn head(self, place: &Path) -> String {
        let place = place.display();
        match self {
            Self::Nginx => format!(
                "load_module {NGINX_MODULE}; daemon off; error_log {place}/balancer.log;\n\
                 pid {place}/nginx.pid; events {{}}\n"
            ),
            Self::HaProxy => String::new(),
        }
    }
}

impl Balancer {
    fn start(program: BalancerProgram, config: String) -> Option<Self> {
        let path = program.path()?;
        let place = TempDir::new().unwrap();
        let child = Self::spawn(program, path, place.path(), &config);
        Some(Self { program, place, config, child })
    }

    fn spawn(program: BalancerProgram, path: &str, place: &Path, config: &str) -> Child {
        let file = place.join("balancer.conf");
        fs::write(&file, format!("{}{config}", program.head(place))).unwrap();
        let mut command = Command::new(path);
        match program {
            BalancerProgram::Nginx => command.arg("-p").arg(place).arg("-c").arg(&file),
            BalancerProgram::HaProxy => command.args(["-W", "-db", "-f"]).arg(&file),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Changes what a port leads to, as an operator does.
    fn reload(&mut self, config: String) {
        self.config = config;
        let file: PathBuf = self.place.path().join("balancer.conf");
        fs::write(file, format!("{}{}", self.program.head(self.place.path()), self.config))
            .unwrap();
        let signal = match self.program {
            BalancerProgram::Nginx => Signal::HUP,
            BalancerProgram::HaProxy => Signal::USR2,
        };
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A message from the second member of a group to the first one.
fn say(members: &mut [Member; 3], names: &[&str; 3], text: &str) {
    assert!(members[1].say(names[0], text));
    assert_eq!(members[0].wait_for("message"), format!("message {} {text}", names[1]));
    members[1].wait_for("delivered");
}

fn groups_talk_through(program: BalancerProgram) {
    let addresses = [(); 2].map(|()| free_address());
    let ports = [(); 3].map(|()| free_port());
    let config = program.config(addresses, ports);
    let Some(mut balancer) = Balancer::start(program, config.clone()) else { return };
    let [(one, first), (two, second)] = addresses.map(|address| {
        Room::open_empty(None, &address.to_string(), "balancers = [\"127.0.0.1\"]\n")
    });
    let at = |group: usize| format!("127.0.0.1:{}", ports[group]);
    for (group, (room, proxy)) in
        [(&one, &first), (&one, &first), (&two, &second)].iter().enumerate()
    {
        let (name, members) = &GROUPS[group];
        room.add_group(proxy, name, members, &at(group), "");
    }
    let [mut friends, mut office, mut family] = [(&one, 0), (&one, 1), (&two, 2)]
        .map(|(room, group): (&Room, usize)| GROUPS[group].1.map(|name| room.talk(name)));
    say(&mut friends, &GROUPS[0].1, "on one proxy");
    say(&mut office, &GROUPS[1].1, "with others");
    say(&mut family, &GROUPS[2].1, "on another one");

    // Checks of whether a proxy listens are no failures.
    for _ in 0..20 {
        drop(TcpStream::connect(addresses[0]).unwrap());
    }

    // A member at the port of another proxy is told, and so is that proxy's operator.
    let mut lost = friends;
    lost[2].stop(Signal::TERM);
    one.set_proxy("carol", &at(2));
    lost[2] = one.talk("carol");
    let why = lost[2].wait_for("disconnected");
    assert!(why.contains("the proxy does not have the group any more"), "{why}");
    let refused = "this proxy does not have the group friends that it asks for";
    two.wait_until("the proxy names the group", || two.log().contains(refused));
    lost[2].stop(Signal::TERM);
    one.set_proxy("carol", &at(0));
    lost[2] = one.talk("carol");
    let mut friends = lost;

    // Only the groups of a proxy stop with it, and they go on when it is back.
    for members in [&mut friends, &mut office, &mut family] {
        members.iter_mut().for_each(Member::forget);
    }
    second.stop();
    family[0].wait_for("disconnected");
    say(&mut friends, &GROUPS[0].1, "still here");
    say(&mut office, &GROUPS[1].1, "and here");
    let second = Proxy::start_again(&two);
    say(&mut family, &GROUPS[2].1, "again");
    assert!(![&mut friends, &mut office].iter_mut().any(|it| it[0].has_printed("disconnected")));

    move_group(&one, &first, (&two, &second));
    balancer.reload(moved_config(program, &config, addresses));
    say(&mut office, &GROUPS[1].1, "moved");
    say(&mut friends, &GROUPS[0].1, "not moved");
    let groups = two.status()["groups"].as_array().unwrap().len();
    assert_eq!((groups, one.status()["groups"].as_array().unwrap().len()), (2, 1));
    assert!(!one.log().contains("no connection"), "{}", one.log());
}

/// The configuration in which the port of the group "office" leads to the second proxy.
fn moved_config(program: BalancerProgram, config: &str, addresses: [SocketAddr; 2]) -> String {
    match program {
        BalancerProgram::Nginx => {
            let line = config.lines().find(|line| line.ends_with("# office")).unwrap();
            config.replace(line, &line.replace("proxy-1", "proxy-2"))
        }
        BalancerProgram::HaProxy => {
            let (before, after) = config.split_once("listen office").unwrap();
            let [from, to] = addresses.map(|address| address.to_string());
            format!("{before}listen office{}", after.replacen(&from, &to, 1))
        }
    }
}

/// Moves the group "office" as the guide says.
fn move_group(from: &Room, old: &Proxy, (to, new): (&Room, &Proxy)) {
    let config = fs::read_to_string(from.path("proxy.toml")).unwrap();
    let at = config.find("[[group]]\nname = \"office\"").unwrap();
    let (others, group) = config.split_at(at);
    from.configure(old, others);
    assert!(from.log().contains("the group has ended"), "{}", from.log());
    let files = fs::read_dir(from.path("proxy.state")).unwrap().map(|file| file.unwrap());
    let own: Vec<_> =
        files.filter(|it| it.file_name().to_string_lossy().starts_with("office.")).collect();
    assert!(own.len() > 1, "{own:?}");
    for file in own {
        fs::rename(file.path(), to.path("proxy.state").join(file.file_name())).unwrap();
    }
    let config = fs::read_to_string(to.path("proxy.toml")).unwrap();
    to.configure(new, &format!("{config}{group}"));
}

#[test]
fn groups_of_two_proxies_talk_through_nginx() {
    groups_talk_through(BalancerProgram::Nginx);
}

#[test]
fn groups_of_two_proxies_talk_through_haproxy() {
    groups_talk_through(BalancerProgram::HaProxy);
}
