"""What the entries of a log say about a handover.

`State.apply` gives each entry's verdict: it is applied, it leaves everything unchanged, or it
proves its author faulty.
"""

import entries
from edwards import Refused
from sharing import combine_commitments, lagrange_at_0

APPLIED, UNCHANGED, FAULTY = "applied", "unchanged", "faulty"


class State:
    def __init__(self, run, old, new_f):
        """`old` is the old group's commitment, or None in a key generation."""
        self.run, self.old, self.new_f = run, old, new_f
        self.receivers = 3 * new_f + 1
        self.quorum = 2 * new_f + 1
        self.dealers = 3 * old.f + 1 if old else self.receivers
        self.needed = (old.f if old else new_f) + 1  # dealers to choose
        self.keys = {}  # R_j
        self.deals = {}
        self.holders = {}  # of each dealing
        self.held = []  # dealers whose dealing is held, in the order in which that happened
        self.complaints = set()  # right ones: (dealer, receiver)
        self.faulty = set()  # (role, number)
        self.chosen = None
        self.commitment = None  # of the new group, when the dealers are chosen
        self.confirmed = set()

    def final(self):
        return len(self.confirmed) >= self.quorum

    def _accuse(self, role, number):
        """A server is faulty in one role: as a receiver it counts even if it is a faulty dealer."""
        self.faulty.add((role, number))

    def apply(self, role, author, data):
        """The verdict on an entry. The log names the author, the bytes do not."""
        if self.final() or (role, author) in self.faulty:
            return UNCHANGED
        verdict = self._judge(role, author, data)
        if verdict == FAULTY:
            self._accuse(role, author)
        return verdict

    def _judge(self, role, author, data):
        if data[:32] != self.run:
            return UNCHANGED
        try:
            _, entry = entries.decode(data)
        except Refused:
            return UNCHANGED
        # The author is not in the group in the role that the entry is for.
        if role != ("dealer" if isinstance(entry, entries.Deal) else "receiver"):
            return UNCHANGED
        if not 1 <= author <= (self.dealers if role == "dealer" else self.receivers):
            return UNCHANGED
        judge = {
            entries.Key: self._key,
            entries.Deal: self._deal,
            entries.Hold: self._hold,
            entries.Complain: self._complain,
            entries.Confirm: self._confirm,
        }[type(entry)]
        return judge(author, entry)

    def _key(self, author, key):
        if author in self.keys:
            return UNCHANGED
        if not key.holds(self.run, author):
            return FAULTY
        self.keys[author] = key.R
        return APPLIED

    def _deal(self, author, deal):
        if author in self.deals:
            return UNCHANGED
        if not deal.ciphertexts.keys() <= self.keys.keys():
            return UNCHANGED
        if deal.commitment.f != self.new_f or len(deal.ciphertexts) < self.quorum:
            return FAULTY
        if self.old:
            if not deal.commitment.public_key() == self.old.verification_share(author):
                return FAULTY
        if not deal.holds(self.run, author):
            return FAULTY
        self.deals[author] = deal
        self.holders[author] = set()
        return APPLIED

    def _hold(self, author, hold):
        # One dealing that is not in the log makes the whole entry change nothing.
        if author not in self.keys or not all(i in self.deals for i in hold.dealers):
            return UNCHANGED
        new = [i for i in hold.dealers if author not in self.holders[i]]
        if not new:
            return UNCHANGED
        for i in new:  # lower numbers first
            self.holders[i].add(author)
            if len(self.holders[i]) == self.quorum:
                self.held.append(i)
        self._choose()
        return APPLIED

    def _choose(self):
        """The choice is made after the entry that makes it possible, and then never changes."""
        able = [i for i in self.held if ("dealer", i) not in self.faulty]
        if self.chosen is None and len(able) >= self.needed:
            self.chosen = able[: self.needed]
            commitments = {i: self.deals[i].commitment for i in self.chosen}
            self.commitment = combine_commitments(self.factors(), commitments)

    def factors(self):
        """By what each chosen dealing is multiplied."""
        return lagrange_at_0(self.chosen) if self.old else {i: 1 for i in self.chosen}

    def _complain(self, author, complain):
        dealer = complain.dealer
        if dealer not in self.deals or author not in self.deals[dealer].ciphertexts:
            return UNCHANGED
        if ("dealer", dealer) in self.faulty:
            return UNCHANGED
        deal = self.deals[dealer]
        if not complain.holds(self.run, author, self.keys[author], deal.E):
            return FAULTY
        if self.decrypted_row(dealer, author, complain.K) is not None:
            return FAULTY
        self.complaints.add((dealer, author))
        self._accuse("dealer", dealer)
        return APPLIED

    def decrypted_row(self, dealer, receiver, shared):
        """The receiver's row of a dealing, or None if the ciphertext is wrong."""
        deal = self.deals[dealer]
        row = entries.decrypt_row(self.run, dealer, receiver, shared, deal.ciphertexts[receiver])
        if row is None or not deal.commitment.has_row(receiver, row):
            return None
        return row

    def _confirm(self, author, confirm):
        if self.chosen is None or author in self.confirmed:
            return UNCHANGED
        if not confirm.holds(self.run, author, self.commitment.verification_share(author)):
            return FAULTY
        self.confirmed.add(author)
        return APPLIED
