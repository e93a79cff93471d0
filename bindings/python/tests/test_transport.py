"""The package sunder_transport, as it is installed."""

import ast
import asyncio
import gc
import hashlib
import inspect
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest

import sunder_transport as transport
from sunder_transport import _native

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples/python"

# RFC 8032, 7.1, test 2.
SECRET = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"

# One needs a network without loss, the other several networks.
NAMES = ["auto"] + [it for it in transport.transports() if it not in ("udp", "micss")]


def pair(name="tcp", **options):
    """Both ends of a connection."""
    with transport.Listener("127.0.0.1:0") as listener:
        key = listener.public_key
        connection = transport.connect(listener.address, peer=key, transport=name, **options)
        return connection, listener.accept(timeout=20)


class Connections(unittest.TestCase):
    def test_bytes_and_messages_cross_each_transport(self):
        for name in NAMES:
            with self.subTest(name):
                one, other = pair(name)
                with one, other:
                    self.assertIn(one.transport, transport.transports())
                    one.write(b"hello")
                    one.flush()
                    self.assertEqual(other.read_exact(5), b"hello")
                    messages = [b"x" * size for size in (1, 0, 100_000, 7)]
                    for message in messages:
                        other.send(message)
                    other.finish()
                    self.assertEqual(list(one.messages()), messages)
                    self.assertIsNone(one.receive())
                    self.assertEqual(one.read(), b"")

    def test_a_large_transfer_each_way_at_once(self):
        sent = [os.urandom(1 << 20) * 8, os.urandom(1 << 20) * 8]
        for name in NAMES:
            with self.subTest(name):
                received = [None, None]

                def receive(reader, i):
                    digest = hashlib.sha256()
                    while piece := reader.read(1 << 16):
                        digest.update(piece)
                    received[i] = digest.digest()

                def send(writer, i):
                    writer.write(sent[i])
                    writer.finish()

                halves = [end.split() for end in pair(name)]
                threads = []
                for i, (reader, writer) in enumerate(halves):
                    threads.append(threading.Thread(target=receive, args=(reader, i)))
                    threads.append(threading.Thread(target=send, args=(writer, i)))
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                digests = [hashlib.sha256(it).digest() for it in sent]
                self.assertEqual(received, digests[::-1])

    def test_any_buffer_is_sent_and_filled(self):
        one, other = pair()
        with one, other:
            for data in (b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]):
                self.assertEqual(one.write(data), 2)
            one.flush()
            into = bytearray(4)
            self.assertEqual(other.readinto(memoryview(into)[1:3]), 2)
            self.assertEqual(into, b"\0ab\0")
            self.assertEqual(other.read_exact(4), b"cdef")
            with self.assertRaises(ValueError):
                other.readinto(b"read only")
            with self.assertRaises(TypeError):
                one.write("text")

    def test_keys_and_statistics(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "test.key")
            path.write_text(SECRET + "\n")
            path.chmod(0o600)
            identity = transport.Identity(path)
        self.assertEqual(identity.public_key, PUBLIC)
        one, other = pair(identity=identity)
        with one, other:
            self.assertEqual(other.peer, PUBLIC)
            one.send(b"1234")
            one.flush()
            self.assertEqual(other.receive(4), b"1234")
            self.assertEqual(one.statistics()["bytes_sent"], 12)
            self.assertEqual(other.statistics()["bytes_received"], 12)
            self.assertEqual(one.statistics().keys(), other.statistics().keys())

    def test_insecure_connections_have_no_keys(self):
        with transport.Listener("127.0.0.1:0", insecure=True) as listener:
            self.assertIsNone(listener.public_key)
            with transport.connect(listener.address, insecure=True, transport="tcp") as one:
                one.write(b"x")
                one.flush()
                with listener.accept(timeout=20) as other:
                    self.assertEqual(other.read(), b"x")
                    self.assertIsNone(other.peer)


class Failures(unittest.TestCase):
    def test_wrong_arguments(self):
        key = transport.Identity().public_key
        for arguments in (
            {"address": "127.0.0.1:1"},
            {"address": "127.0.0.1:1", "peer": "1234"},
            {"address": "127.0.0.1", "peer": key},
            {"address": "127.0.0.1:1", "peer": key, "transport": "pigeon"},
            {"address": "127.0.0.1:1", "peer": key, "insecure": True},
            {"address": "127.0.0.1:1", "peer": key, "timeout": 0},
        ):
            with self.subTest(arguments), self.assertRaises(ValueError):
                transport.connect(**arguments)
        with self.assertRaises(transport.Error):
            transport.Identity("/does/not/exist")

    def test_nobody_listens(self):
        with transport.Listener("127.0.0.1:0") as listener:
            address, key = listener.address, listener.public_key
        with self.assertRaises(transport.Unreachable) as raised:
            transport.connect(address, peer=key, transport="tcp")
        self.assertIsInstance(raised.exception, ConnectionError)
        self.assertIn("nobody listens there", str(raised.exception))

    def test_a_peer_with_another_key(self):
        with transport.Listener("127.0.0.1:0") as listener:
            key = transport.Identity().public_key
            with self.assertRaises(transport.NotAuthenticated):
                transport.connect(listener.address, peer=key, transport="tcp")
            with self.assertRaises(TimeoutError):
                listener.accept(timeout=0.2)

    def test_nothing_arrives(self):
        one, other = pair(timeout=0.25)
        with one, other:
            one.write(b"x")
            with self.assertRaises(transport.TimedOut) as raised:
                one.read()
            self.assertIsInstance(raised.exception, TimeoutError)
            self.assertIn("nothing for 0.25 s", str(raised.exception))
            # What was written had been flushed, and the connection goes on.
            self.assertEqual(other.read(), b"x")
            other.write(b"y")
            other.flush()
            self.assertEqual(one.read(), b"y")

    def test_streams_that_end(self):
        one, other = pair()
        with one:
            other.send(b"four")
            other.write(b"abc")
            other.finish()
            with self.assertRaises(transport.MessageTooLong):
                one.receive(3)
            with self.assertRaises(transport.Closed):
                one.read_exact(8)
            other.close()
            for call in (other.read, other.flush, other.receive, other.finish, other.split):
                with self.assertRaises(transport.Closed):
                    call()

    def test_halves(self):
        one, other = pair()
        reader, writer = one.split()
        with reader, writer, other:
            with self.assertRaises(transport.Closed):
                one.read()
            with self.assertRaises(ValueError):
                reader.write(b"x")
            with self.assertRaises(ValueError):
                writer.read()
            writer.complete()
            with self.assertRaises(ValueError):
                reader.complete()
            with self.assertRaises(ValueError):
                writer.split()

    def test_a_second_thread_is_told_to_split(self):
        one, other = pair()
        with one, other:
            got = []

            def read():
                while not got:
                    try:
                        got.append(one.read())
                    except RuntimeError:
                        pass

            thread = threading.Thread(target=read)
            thread.start()
            with self.assertRaisesRegex(RuntimeError, "split"):
                while True:
                    one.statistics()
            other.write(b"x")
            other.flush()
            thread.join()
            self.assertEqual(got, [b"x"])

    def test_abort_ends_what_another_thread_waits_for(self):
        for name in NAMES:
            with self.subTest(name):
                one, other = pair(name)
                (reader, writer), raised = one.split(), []

                def read():
                    try:
                        reader.read()
                    except transport.Closed as error:
                        raised.append(error)

                thread = threading.Thread(target=read)
                thread.start()
                writer.abort()
                thread.join()
                self.assertEqual(len(raised), 1)
                other.close()

    def test_close_ends_accept_in_another_thread(self):
        listener = transport.Listener("127.0.0.1:0")
        raised = []

        def accept():
            try:
                listener.accept()
            except transport.Closed as error:
                raised.append(error)

        thread = threading.Thread(target=accept)
        thread.start()
        listener.close()
        thread.join()
        self.assertEqual(len(raised), 1)


class EventLoops(unittest.IsolatedAsyncioTestCase):
    def test_a_socket_is_selected(self):
        one, other = pair()
        with one, other, one.into_socket() as sock:
            self.assertEqual(select.select([sock], [], [], 0)[0], [])
            other.write(b"hello")
            other.flush()
            self.assertEqual(select.select([sock], [], [], 20)[0], [sock])
            self.assertEqual(sock.recv(100), b"hello")
            sock.sendall(b"answer")
            self.assertEqual(other.read_exact(6), b"answer")
            with self.assertRaises(transport.Closed):
                one.read()

    def test_a_socket_of_a_connection_that_fails_is_reset(self):
        one, other = pair()
        with one, other, one.into_socket() as sock:
            other.abort()
            with self.assertRaises(ConnectionResetError):
                sock.recv(1)

    async def test_streams_of_asyncio(self):
        async def echo(reader, writer):
            writer.write(await reader.read())
            writer.write_eof()
            await writer.drain()
            writer.close()

        async def ask(listener, data):
            key = listener.public_key
            reader, writer = await transport.open_connection(listener.address, peer=key)
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

        listener = transport.Listener("127.0.0.1:0")
        server = asyncio.create_task(transport.start_server(echo, listener))
        data = [os.urandom(300_000) for _ in range(8)]
        answers = await asyncio.gather(*(ask(listener, one) for one in data))
        self.assertEqual(answers, data)
        listener.close()
        await server

    def test_a_key_from_memory(self):
        identity = transport.Identity.from_bytes(bytes.fromhex(SECRET))
        self.assertEqual(identity.public_key, PUBLIC)
        with self.assertRaises(ValueError):
            transport.Identity.from_bytes(b"short")


class UnixStream:
    def __init__(self, sock):
        self.sock = sock

    def read(self, size):
        return self.sock.recv(size)

    def write(self, data):
        return self.sock.send(data)

    def finish(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)

    def set_timeout(self, seconds):
        self.sock.settimeout(seconds)


class UnixAcceptor:
    def __init__(self, sock):
        self.sock = sock

    def accept(self):
        return UnixStream(self.sock.accept()[0])

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)


class UnixTransport:
    """Unix-domain sockets, between programs of one host."""

    name = "unix"
    about = "Unix-domain sockets"

    def connect(self, address, timeout):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path(address))
        return UnixStream(sock)

    def listen(self, address):
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(self.path(address))
        sock.listen()
        return UnixAcceptor(sock)

    def latency(self, path, exchange):
        round_trip, *_ = path
        return 1e-6 if round_trip < 1e-4 else None

    @staticmethod
    def path(address):
        return f"\0sunder-python-{address.rpartition(':')[2]}"


# In another program: the registration belongs to the process.
REGISTERED = """
import threading

import sunder_transport as transport
from test_transport import UnixTransport, pair

transport.register(UnixTransport())
assert "unix" in transport.transports()
for name in ("unix", "tcp"):
    one, other = pair(name)
    with one, other:
        assert (one.transport, other.transport) == (name, name)
        reads, writes = one.split()
        def send():
            writes.write(bytes(3_000_000))
            writes.finish()
        sending = threading.Thread(target=send)
        sending.start()
        assert other.read_exact(3_000_000) == bytes(3_000_000)
        sending.join()
        other.send(b"answer")
        other.finish()
        assert reads.receive() == b"answer"
one, other = pair("unix", timeout=0.05)
with one, other:
    try:
        one.read()
        raise AssertionError("nothing was sent")
    except transport.TimedOut:
        pass
try:
    transport.register(UnixTransport())
    raise AssertionError("the name is taken")
except ValueError as error:
    assert "already" in str(error), error
listener = transport.Listener("127.0.0.1:0")
address, key = listener.address, listener.public_key
listener.close()
try:
    while True:
        transport.connect(address, peer=key, transport="unix").close()
except transport.Unreachable:
    pass
print("done")
"""


class Registration(unittest.TestCase):
    def test_a_program_adds_a_transport_of_its_own(self):
        command = [sys.executable, "-c", REGISTERED]
        tests = pathlib.Path(__file__).parent
        done = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)


class Processes(unittest.TestCase):
    def run_echo(self, message):
        server = [sys.executable, EXAMPLES / "echo_server.py", "127.0.0.1:0"]
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as server:
            command, *arguments = server.stdout.readline().split()
            self.assertEqual(command, "echo_client")
            client = [sys.executable, EXAMPLES / "echo_client.py", *arguments, "tcp", message]
            said = subprocess.run(client, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
            self.assertEqual(server.wait(timeout=60), 0)
            return said.stdout

    def test_the_examples(self):
        self.assertEqual(self.run_echo("Grüße"), "tcp: Grüße\n")

    def test_a_forked_child_does_not_disturb_its_parent(self):
        for name in NAMES:
            with self.subTest(name):
                one, other = pair(name)
                child = os.fork()
                if child == 0:
                    # It cannot use the connection, and its garbage collection does not end it.
                    try:
                        one.write(b"x")
                        one.flush()
                    except transport.Error:
                        del one, other
                        gc.collect()
                        os._exit(0)
                    os._exit(1)
                _, status = os.waitpid(child, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 0)
                with one, other:
                    one.send(b"from the parent")
                    one.flush()
                    self.assertEqual(other.receive(), b"from the parent")

    def test_ctrl_c_ends_what_waits(self):
        waiting = {
            "accept": "listener.accept()",
            "read": "transport.connect(listener.address, peer=listener.public_key).read()",
        }
        for name, call in waiting.items():
            with self.subTest(name):
                program = (
                    "import signal\n"
                    "import sunder_transport as transport\n"
                    # A job in the background of a script inherits that it is ignored.
                    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                    "listener = transport.Listener('127.0.0.1:0')\n"
                    "print(flush=True)\n"
                    f"{call}\n"
                )
                command, pipe = [sys.executable, "-c", program], subprocess.PIPE
                with subprocess.Popen(command, stdout=pipe, stderr=pipe) as it:
                    it.stdout.readline()
                    it.send_signal(signal.SIGINT)
                    _, said = it.communicate(timeout=60)
                self.assertIn(b"KeyboardInterrupt", said)


class Stubs(unittest.TestCase):
    """What type checkers read says what there is."""

    DICTIONARIES = {"Statistics", "ComputeStatistics"}

    def test_the_stubs_have_the_names_and_parameters_of_the_module(self):
        stub = ast.parse(pathlib.Path(_native.__file__).with_name("_native.pyi").read_text())
        for node in stub.body:
            if isinstance(node, ast.FunctionDef):
                self.same(node, getattr(_native, node.name))
            if not isinstance(node, ast.ClassDef) or node.name in self.DICTIONARIES:
                continue
            real = getattr(_native, node.name)
            stated = {it.name: it for it in node.body if isinstance(it, ast.FunctionDef)}
            public = {it for it in vars(real) if not it.startswith("_")}
            self.assertEqual(public, {it for it in stated if not it.startswith("_")})
            for name, function in stated.items():
                if not function.decorator_list and name != "__new__":
                    self.same(function, getattr(real, name))
            if "__new__" in stated:
                self.same(stated["__new__"], real, skip=1)
        names = {it.name for it in stub.body if isinstance(it, (ast.ClassDef, ast.FunctionDef))}
        public = {it for it in vars(_native) if not it.startswith("_")}
        self.assertEqual(names - self.DICTIONARIES, public - {"Messages"})

    def test_the_stubs_have_the_statistics(self):
        one, other = pair()
        with one, other:
            stub = ast.parse(pathlib.Path(_native.__file__).with_name("_native.pyi").read_text())
            statistics = next(it for it in stub.body if getattr(it, "name", "") == "Statistics")
            fields = [it.target.id for it in statistics.body if isinstance(it, ast.AnnAssign)]
            self.assertEqual(fields, list(one.statistics()))

    def same(self, stated, real, skip=0):
        # An operator: Python names its operands itself.
        if isinstance(real, types.WrapperDescriptorType):
            return
        parameters = list(inspect.signature(real).parameters.values())
        arguments = stated.args.args[skip:] + stated.args.kwonlyargs
        self.assertEqual([it.arg for it in arguments], [it.name for it in parameters], stated.name)
        defaults = stated.args.defaults + [it for it in stated.args.kw_defaults if it]
        defaults = [ast.literal_eval(it) for it in defaults]
        real = [it.default for it in parameters if it.default is not inspect.Parameter.empty]
        self.assertEqual(defaults, real, stated.name)


if __name__ == "__main__":
    unittest.main()
