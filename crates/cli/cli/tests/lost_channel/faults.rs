//! Faults of a channel at either end.

use lab::LinkDirection;

use crate::testbed::{End, FAULTY, LINKS, Testbed};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The link of channel 2 is taken down at an end: `ip link set b down`.
    LinkDown(End),
    /// The link of channel 2 loses all packets in these directions, without a notification to the
    /// ends.
    Wire(&'static [LinkDirection]),
    /// Incoming packets on channel 2 are dropped at an end.
    DropIn(End),
    /// Outgoing packets on channel 2 are dropped at an end.
    DropOut(End),
    /// Packets in both directions on channel 2 are dropped at an end.
    DropAll(End),
    /// An end's process is killed.
    Killed(End),
    /// An end's host vanishes: all channels lose all packets.
    HostDown,
}

impl Fault {
    pub(crate) const ALL: [Self; 13] = [
        Self::LinkDown(End::Client),
        Self::LinkDown(End::Server),
        Self::DropAll(End::Client),
        Self::DropAll(End::Server),
        Self::Wire(&LinkDirection::BOTH),
        Self::DropOut(End::Client),
        Self::DropOut(End::Server),
        Self::DropIn(End::Client),
        Self::DropIn(End::Server),
        Self::Wire(&[LinkDirection::Forward]),
        Self::Wire(&[LinkDirection::Back]),
        Self::Killed(End::Server),
        Self::HostDown,
    ];

    /// The lost channels, from 0.
    pub(crate) fn channels(self) -> &'static [usize] {
        if matches!(self, Self::Killed(_) | Self::HostDown) { &[0, 1, 2] } else { &[1] }
    }

    /// The name in the table.
    pub(crate) fn name(self) -> String {
        let at = |end: End| end.host();
        match self {
            Self::LinkDown(end) => format!("link down at the {}", at(end)),
            Self::Wire([_]) if self == Self::Wire(&[LinkDirection::Forward]) => {
                "blackhole on the way, client to server".into()
            }
            Self::Wire([_]) => "blackhole on the way, server to client".into(),
            Self::Wire(_) => "blackhole on the way, both ways".into(),
            Self::DropIn(end) => format!("blackhole at the {}, in", at(end)),
            Self::DropOut(end) => format!("blackhole at the {}, out", at(end)),
            Self::DropAll(end) => format!("blackhole at the {}, both ways", at(end)),
            Self::Killed(end) => format!("the {}'s process is killed", at(end)),
            Self::HostDown => "a host is gone: all channels".into(),
        }
    }

    /// Injects the fault.
    pub(crate) fn inject(self, testbed: &mut Testbed) {
        let drop = |testbed: &Testbed, end, hook: &str, matches: &str| {
            let text = format!(
                "table inet fault_{hook} {{ chain drops {{ type filter hook {hook} priority 0; {matches} \"{FAULTY}\" \
                 drop; }}; }}"
            );
            testbed.host(end).run(|| {
                let mut nft = std::process::Command::new("nft");
                nft.arg(&text).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
                assert!(nft.status().unwrap().success(), "{text}");
            })
        };
        match self {
            Self::LinkDown(end) => testbed.run(end, "ip", &format!("link set dev {FAULTY} down")),
            Self::Wire(directions) => testbed.cut(FAULTY, directions, true),
            Self::DropIn(end) => drop(testbed, end, "input", "iifname").unwrap(),
            Self::DropOut(end) => drop(testbed, end, "output", "oifname").unwrap(),
            Self::DropAll(end) => {
                drop(testbed, end, "input", "iifname").unwrap();
                drop(testbed, end, "output", "oifname").unwrap();
            }
            Self::Killed(end) => testbed.kill(end),
            Self::HostDown => {
                for link in LINKS {
                    testbed.cut(link, &LinkDirection::BOTH, true);
                }
            }
        }
    }
}
