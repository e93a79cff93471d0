"""Sends each message back to whoever sent it.

usage: echo_server.py ADDRESS:PORT
"""

import sys

import sunder_transport as transport


def main(address):
    with transport.Listener(address) as listener:
        print("echo_client", listener.address, listener.public_key, flush=True)
        with listener.accept() as connection:
            for message in connection.messages():
                connection.send(message)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: echo_server.py ADDRESS:PORT")
    main(sys.argv[1])
