"""Two companies find the customers that both have, by the column email of two data frames.

usage: customers.py FILE ADDRESS:PORT         waits for the other company
       customers.py FILE HOST:PORT KEY        connects to the one that waits
"""

import sys

import pandas
import sunder_compute as compute
import sunder_transport as transport


def common_rows(table, connection, role):
    found = compute.psi(table["email"], connection, role, normalize="email")
    return table.iloc[found.rows]


def main(file, address, key=None):
    table = pandas.read_csv(file)
    if key:
        print(common_rows(table, transport.connect(address, peer=key), "receiver"))
        return
    with transport.Listener(address) as listener:
        print("customers.py FILE", listener.address, listener.public_key, flush=True)
        print(common_rows(table, listener.accept(), "sender"))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
