"""Runs groups of programs of one or several versions of Sunder, for `compatibility` and
`version-files`."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# How long a condition may take. For what is expected to fail, less.
TIMES = {"wait_s": 60}
KEY = "00112233445566778899aabbccddeeff" * 2


class Failed(Exception):
    """The two versions do not understand each other."""


class Skipped(Exception):
    """This host cannot run the check."""


class Place:
    """A directory, in which programs run until the block ends."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="sunder-compatibility-"))
        self.running, self.count = [], 0
        (self.path / "inbox").mkdir()
        # Where `sunder status` finds daemons, and they nothing of this host's own.
        (self.path / "runtime_directory").mkdir(mode=0o700)
        return self

    def __exit__(self, *_):
        for program in reversed(self.running):
            self.kill(program)
        shutil.rmtree(self.path)

    def environment(self):
        names = ("XDG_STATE_HOME", "RUNTIME_DIRECTORY", "HOME")
        return {**os.environ, **{name: str(self.path / name.lower()) for name in names}}

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def start(self, *command, stdin=subprocess.DEVNULL):
        """Starts a program. `output_of` returns what it has printed."""
        self.count += 1
        output = open(self.path / f"{self.count}.out", "wb")
        program = subprocess.Popen([str(word) for word in command], cwd=self.path, stdin=stdin,
                                   stdout=output, stderr=subprocess.STDOUT,
                                   env=self.environment())
        program.output = self.path / f"{self.count}.out"
        self.running.append(program)
        return program

    def stop(self, program):
        """Ends a program as systemd does."""
        if program in self.running:
            self.running.remove(program)
        if program.stdin:
            program.stdin.close()
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def stop_all(self):
        for program in reversed(self.running.copy()):
            self.stop(program)

    def kill(self, program):
        program.kill()
        program.wait()

    def run(self, *command, text=None):
        """What a command prints on standard output."""
        done = subprocess.run([str(word) for word in command], cwd=self.path, input=text,
                              capture_output=True, text=True, env=self.environment(),
                              timeout=TIMES["wait_s"])
        if done.returncode:
            raise Failed(f"exit code {done.returncode}: {last_line(done.stderr)}")
        return done.stdout


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


def output_of(program):
    return program.output.read_text(errors="replace")


def wait_for(what, condition, programs=(), seconds=None):
    """Waits for a condition; programs that should run tell why it does not come true."""
    deadline = time.monotonic() + (seconds or TIMES["wait_s"])
    while not condition():
        ended = [it for it in programs if it.poll() not in (None, 0)]
        if ended or time.monotonic() > deadline:
            said = "; ".join(last_line(output_of(it)) for it in ended or programs)
            raise Failed(f"not {what}: {said}")
        time.sleep(0.05)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def random_file(place, name, length):
    path = place.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(os.urandom(length))
    return path


class Chat:
    """A proxy and three members, each of a version that can change."""

    def __init__(self, place, proxy, members):
        self.place, self.members = place, {}
        self.port = free_ports(1)[0]
        place.write("proxy.key", KEY)
        place.write("proxy.toml", f'identity = "proxy.key"\nlisten = "127.0.0.1:{self.port}"\n'
                    'state = "proxy.state"\n')
        self.start_proxy(proxy)
        key = re.search(r'proxy_key = "(\w+)"', output_of(self.proxy))[1]
        names = ("alice", "bob", "carol")
        group = place.run(members[0], "chat", "init", "--config", "alice.toml", "--name", "alice",
                          "--group", "friends", "--proxy", f"127.0.0.1:{self.port}", "--proxy-key",
                          key)
        with open(place.path / "proxy.toml", "a") as config:
            config.write(group)
        self.restart_proxy(proxy)
        codes = [place.run(members[0], "chat", "invite", "--config", "alice.toml", name)
                 for name in names[1:]]
        self.enter("alice", members[0])
        for name, code, program in zip(names[1:], codes, members[1:]):
            place.run(program, "chat", "join", "-", "--config", f"{name}.toml", text=code)
            self.enter(name, program)

    def start_proxy(self, program):
        self.proxy = self.place.start(program, "mix", "--config", "proxy.toml")
        wait_for("listening", lambda: "proxy_key" in output_of(self.proxy), [self.proxy])

    def restart_proxy(self, program):
        self.place.stop(self.proxy)
        self.start_proxy(program)

    def enter(self, name, program):
        self.members[name] = self.place.start(program, "chat", "--config", f"{name}.toml",
                                              "--plain", stdin=subprocess.PIPE)

    def replace(self, name, program):
        self.place.stop(self.members[name])
        self.enter(name, program)

    def say(self, sender, receiver, text):
        """Sends a message until the chat takes it, which it does if enough members take part."""
        member, said = self.members[sender], f"message {sender} {text}"
        refusals = lambda: output_of(member).count(f"refused {receiver}")
        sent_at = None

        def delivered():
            nonlocal sent_at
            if sent_at is None or refusals() > sent_at:
                sent_at = refusals()
                member.stdin.write(f"@{receiver} {text}\n".encode())
                member.stdin.flush()
            return said in output_of(self.members[receiver])

        wait_for(f"delivered to {receiver}: {text}", delivered,
                 [self.proxy, *self.members.values()])


class Quorum:
    """Four servers that share a key, each of a version that can change."""

    def __init__(self, place, program, before_start=lambda: None):
        self.place, self.ports, self.servers = place, free_ports(4), {}
        place.write("master.key", KEY)
        listed = ""
        for number, port in enumerate(self.ports, 1):
            place.write(f"{number}.key", f"{number:02x}" * 32)
            identity = place.run(program, "quorum", "identity", f"{number}.key").strip()
            listed += f'[[server]]\nidentity = "{identity}"\naddress = "127.0.0.1:{port}"\n'
            place.write(f"{number}.toml", f'identity = "{number}.key"\n'
                        'public_key = "made/public.pem"\n'
                        f'share = "made/server-{number}.share"\nstore = "store-{number}"\n'
                        f'master_key = "master.key"\nlisten = ["127.0.0.1:{port}"]\n'
                        f'socket = "{number}.api"\n')
        place.write("nodes.toml", listed)
        place.run(program, "quorum", "init", "--nodes", "nodes.toml", "--out", "made")
        before_start()
        for number in range(1, 5):
            self.start(number, program)
        self.wait_until_healthy()

    def start(self, number, program):
        self.servers[number] = self.place.start(program, "quorum", "node", "--config",
                                                f"{number}.toml")

    def replace(self, number, program):
        self.place.stop(self.servers[number])
        self.start(number, program)
        self.wait_until_healthy()

    def health(self, number):
        connection = http.client.HTTPConnection("localhost", timeout=5)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(self.place.path / f"{number}.api"))
            connection.request("GET", "/v1/health")
            return json.load(connection.getresponse())
        except (OSError, ValueError):
            return {}
        finally:
            connection.close()

    def wait_until_healthy(self):
        wait_for("all servers healthy",
                 lambda: all(self.health(number).get("ok") for number in self.servers),
                 self.servers.values())

    def sign(self, name, program):
        """Every server has something signed by another, which openssl accepts."""
        for number in self.servers:
            other = number % 4 + 1
            file = self.place.write(f"{name}-{number}", f"{name} at {number}").name
            for server in (number, other):
                self.place.run(program, "quorum", "register", "--socket", f"{server}.api", file)
            self.place.run(program, "quorum", "sign", "--socket", f"{number}.api", file)
            self.place.run("openssl", "dgst", "-sha256", "-verify", "made/public.pem",
                           "-signature", f"{file}.sig", file)

    def refresh(self, program):
        """The same servers get new shares."""
        epoch = self.health(1)["epoch"]
        for number in (1, 2):
            self.place.run(program, "quorum", "refresh", "--no-wait", "--socket", f"{number}.api",
                           "--to", "nodes.toml")
        wait_for("refreshed", lambda: all(
            self.health(number).get("ok") and self.health(number)["epoch"] == epoch + 1
            for number in self.servers), self.servers.values())
