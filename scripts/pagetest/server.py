"""`sunder lab serve`, started for a test, and asked as the page asks it."""

import http.client
import json
import os
import subprocess
import urllib.parse
from pathlib import Path

from .webdriver import check

OVER = ("finished", "stopped", "failed", "interrupted")


class PageServer:
    """A server with a directory of its own."""

    def __init__(self, sunder, place, port=0):
        self.sunder, self.place = sunder, Path(place)
        self.directory = self.place / "lab"
        # The processes that Live shows have their sockets below this directory.
        self.runtime = self.place / "run"
        self.runtime.mkdir(parents=True, exist_ok=True)
        self.log = open(self.place / "serve.log", "ab")
        # What is learnt of paths is not for those who run the tests.
        self.environment = os.environ | {
            "RUNTIME_DIRECTORY": str(self.runtime), "XDG_STATE_HOME": str(self.place / "state")}
        self.start(port)

    def start(self, port=0):
        """Starts the server, on a port that is free or on this one."""
        self.process = subprocess.Popen(
            [self.sunder, "lab", "serve", "--listen", f"127.0.0.1:{port}", "--directory",
             self.directory], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
            env=self.environment, text=True)
        self.address = self.process.stdout.readline().strip()
        parts = urllib.parse.urlsplit(self.address)
        check(parts.port, f"the server does not start: {self.said()}")
        self.port = parts.port
        self.origin = f"http://127.0.0.1:{self.port}"
        self.token = urllib.parse.parse_qs(parts.query)["t"][0]

    def kill(self):
        """Kills the server, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends the server."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def said(self):
        """What it has written to standard error."""
        return (self.place / "serve.log").read_text(errors="replace")[-2000:]

    def _request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, None if body is None else json.dumps(body), {
            "Cookie": f"sunder-{self.port}={self.token}", "Content-Type": "application/json"})
        return connection.getresponse()

    def call(self, method, path, body=None):
        """Asks the server. Returns its document, or its text."""
        answer = self._request(method, path, body)
        text = answer.read().decode()
        check(answer.status < 400, f"{method} {path}: {answer.status} {text}")
        kind = answer.getheader("Content-Type") or ""
        return json.loads(text) if kind.startswith("application/json") and text else text

    def file(self, path):
        """What the server has at a path, as bytes."""
        answer = self._request("GET", path)
        check(answer.status == 200, f"GET {path}: {answer.status}")
        return answer.read()

    def run_of(self, address):
        """The run that an address of the page shows."""
        return self.call("GET", "/api/runs/" + address.rpartition("/run/")[2])

    def events(self, run):
        """The events of a run, until the server closes the stream."""
        answer = self._request("GET", f"/api/runs/{run}/events")
        check(answer.status == 200, f"no events of {run}: {answer.status}")
        for line in answer:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])

    def command(self, *arguments):
        """Runs a command of this program. Returns its status and its output."""
        done = subprocess.run([self.sunder, *arguments], env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.returncode, done.stdout or done.stderr

    def processes(self):
        """The processes of runs: they have the server's directory as an argument."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "run" in words and any(word.startswith(str(self.directory)) for word in words):
                found.append(int(process.name))
        return found
