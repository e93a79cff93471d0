"""Two bidders learn who bids more, and the lower bid, which the winner pays. They do not learn the
higher bid.

usage: auction.py ADDRESS:PORT BID        waits for the other bidder
       auction.py HOST:PORT KEY BID       connects to the one that waits
"""

import sys

import sunder_compute as compute
import sunder_transport as transport


def auction():
    builder = compute.CircuitBuilder(garbler=[32], evaluator=[32])
    (first,), (second,) = builder.garbler, builder.evaluator
    is_second = first < second
    return builder.finish([is_second, builder.select(is_second, first, second)])


def bid(connection, role, amount):
    with compute.Session(connection, role) as session:
        is_second, price = session.run(auction(), int(amount))
    print("the", "second" if is_second else "first", "bidder wins and pays", price)


def main(address, *rest):
    if len(rest) == 2:
        key, amount = rest
        return bid(transport.connect(address, peer=key), "evaluator", amount)
    with transport.Listener(address) as listener:
        print("auction.py", listener.address, listener.public_key, "BID", flush=True)
        bid(listener.accept(), "garbler", *rest)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
