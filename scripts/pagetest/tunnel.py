"""A tunnel between two network namespaces, whose cables can be pulled."""

import os
import subprocess
import sys

from .newcomer import Skipped
from .webdriver import until

# The rates of the channels to the other end, in Mbit/s, and their risks.
CHANNELS = [(50, 0.1), (30, 0.3), (20, 0.2)]

KEY = "00112233445566778899aabbccddeeff" * 2

# It reads further commands from its standard input, and ends with it. Its own namespace is that of
# the near end.
SCRIPT = """
set -e
trap 'trap "" TERM; kill -TERM 0' EXIT
ip link set lo up
unshare --net sleep infinity &
far=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
at_far() { nsenter --target $far --net "$@"; }
for i in 1 2 3; do
    ip link add near$i type veth peer name far$i netns $far
    ip addr add 10.0.$i.2/24 dev near$i
    at_far ip addr add 10.0.$i.1/24 dev far$i
    ip link set near$i up
    at_far ip link set far$i up
done
echo made
"""

# Datagrams into the tunnel, about 8 Mbit/s of them. Nobody has to receive them.
SENDER = """
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(10):
        try:
            out.sendto(bytes(1000), ("10.9.0.1", 9000))
        except OSError:
            pass
    time.sleep(0.01)
"""


class PulledTunnel:
    """A tunnel over three cables. The near end's status is where a server for Live looks."""

    @classmethod
    def of(cls, test):
        """A tunnel that ends with the test. Skips the step where there can be none."""
        tunnel = cls(test.sunder, test.place / "tunnel", test.server.runtime)
        test.at_end.append(tunnel.end)
        if tunnel.reason:
            raise Skipped(f"this machine gives no network namespaces: {tunnel.reason}")
        return tunnel

    def __init__(self, sunder, place, runtime):
        place.mkdir()
        (place / "key").write_text(KEY)
        (place / "key").chmod(0o600)
        (place / "send.py").write_text(SENDER)
        for end in ("near", "far"):
            (place / f"{end}.toml").write_text(self.configuration(end))
        self.log = place / "near.log"
        environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self.shell = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "sh", "-s"], cwd=place, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(place / "shell.log", "w"),
            env=environment, start_new_session=True)
        self.reason = None
        try:
            self.tell(SCRIPT)
            is_made = self.shell.stdout.readline() == "made\n"
        except BrokenPipeError:
            is_made = False
        if not is_made:
            self.shell.wait()
            self.reason = (place / "shell.log").read_text().strip() or "no namespaces"
            return
        for end, before, directory in (("far", "at_far", place / "far"),
                                       ("near", "", runtime / "near")):
            directory.mkdir()
            self.tell(f"{before} env RUNTIME_DIRECTORY={directory} {sunder} tunnel "
                      f"--config {end}.toml >{end}.log 2>&1 &")
        until("the tunnel", lambda: self.log.exists() and "planned" in self.log.read_text())
        self.tell(f"{sys.executable} send.py &")

    @staticmethod
    def configuration(end):
        """The configuration of an end."""
        key = "server" if end == "near" else "listen"
        lines = ["kappa = 2", "mu = 2.5", 'key = "key"',
                 f'addresses = ["10.9.0.{2 if end == "near" else 1}/24"]']
        for i, (rate, risk) in enumerate(CHANNELS, 1):
            lines += ["[[channel]]", f'{key} = "10.0.{i}.1:6521"', f"rate_mbit = {rate}",
                      f"risk = {risk}"]
        return "\n".join(lines)

    def tell(self, commands):
        """Has the shell perform commands."""
        self.shell.stdin.write(commands + "\n")
        self.shell.stdin.flush()

    def pull(self, channel):
        """Pulls the cable of a channel, from 1."""
        self.tell(f"ip link set near{channel} down")

    def plug(self, channel):
        """Plugs it in again."""
        self.tell(f"ip link set near{channel} up")

    def end(self):
        """Ends both ends. Their namespaces vanish with them."""
        if self.shell.poll() is None:
            self.shell.stdin.close()
            self.shell.wait()
