"""Sends a message, and prints what comes back.

usage: echo_client.py HOST:PORT KEY TRANSPORT MESSAGE
"""

import sys

import sunder_transport as transport


def main(address, key, name, message):
    with transport.connect(address, peer=key, transport=name) as connection:
        connection.send(message.encode())
        print(f"{connection.transport}: {connection.receive().decode()}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: echo_client.py HOST:PORT KEY TRANSPORT MESSAGE")
    main(*sys.argv[1:])
