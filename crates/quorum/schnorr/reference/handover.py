#!/usr/bin/env python3
"""A second implementation of docs/protocols/quorum-ed25519.md, written from that page.

    handover.py verify TRANSCRIPT.json...   recompute all of a handover and compare
    handover.py selftest                    test vectors, and handovers that this program generates
    handover.py example DIRECTORY           write the transcripts of these handovers

A transcript has the entries of one handover in the order of the log, session secrets of receivers,
and what another implementation computed from them. `verify` prints each comparison, and exits with
1 at the first difference. In a transcript all bytes are hexadecimal:

    run               the run identifier
    old               null, or the old group's f and its commitment
    new_f             f'
    entries           author_role ("dealer" or "receiver"), author and bytes of each
    receiver_secrets  by receiver: r, its session secret key; some receivers may be missing
    expected          verdicts ("applied", "unchanged" or "faulty") of the entries, chosen (the
                      dealers), final, commitment and public_key (or null), rows by receiver
    signing           session, answers by server, message and signature of each
"""

import json
import sys
from pathlib import Path

import edwards
import entries
import frost
import sharing
from edwards import B, Refused
from state import APPLIED, State


class Difference(Exception):
    """The transcript has another value than this program."""


def shorten(value):
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 72 else text[:69] + "..."


class Report:
    """Prints comparisons and counts them."""

    def __init__(self, quiet=False):
        self.quiet, self.comparisons = quiet, 0

    def say(self, text):
        if not self.quiet:
            print(text)

    def compare(self, what, computed, expected):
        if computed != expected:
            raise Difference(
                f"{what}\n  computed: {shorten(computed)}\n  expected: {shorten(expected)}"
            )
        self.comparisons += 1
        self.say(f"same  {what}: {shorten(computed)}")


def optional_bytes(text):
    return None if text is None else bytes.fromhex(text)


def verify(transcript, report):
    """Recompute everything in a transcript."""
    old = transcript["old"]
    if old:
        old_f, old = old["f"], sharing.Commitment.decode(bytes.fromhex(old["commitment"]))
        report.compare("degree of the old commitment", old.f, old_f)
    state = State(bytes.fromhex(transcript["run"]), old, transcript["new_f"])
    expected = transcript["expected"]
    secrets = {
        int(j): edwards.decode_scalar(bytes.fromhex(secret["r"]))
        for j, secret in transcript["receiver_secrets"].items()
    }
    replay(state, transcript["entries"], expected["verdicts"], report)
    compare_outcome(state, expected, report)
    for j, r in secrets.items():
        if j in state.keys:
            report.compare(f"session key {j}", (r * B).encode(), state.keys[j].encode())
    rows = new_rows(state, secrets, report) if state.chosen else {}
    for j, row in rows.items():
        fits = state.commitment.has_row(j, row)
        report.compare(f"the new row {j} fits the new commitment", fits, True)
    for j, row in expected["rows"].items():
        if int(j) in rows:
            encoded = sharing.encode_row(rows[int(j)])
            report.compare(f"new row {j}", encoded, bytes.fromhex(row))
        else:
            check_only(state, int(j), row, report)
    if state.commitment:
        compare_proofs(state, transcript["entries"], secrets, rows, report)
    for number, signing in enumerate(transcript.get("signing", []), 1):
        verify_signing(state, signing, f"session {number}", report)


def replay(state, log, verdicts, report):
    report.compare("number of verdicts", len(log), len(verdicts))
    for number, (entry, verdict) in enumerate(zip(log, verdicts), 1):
        data, role, author = bytes.fromhex(entry["bytes"]), entry["author_role"], entry["author"]
        names = {1: "Key", 2: "Deal", 3: "Hold", 4: "Complain", 5: "Confirm"}
        name = names.get(data[32] if len(data) > 32 else 0, "unknown")
        what = f"entry {number}, {name} of {role} {author}"
        report.compare(what, state.apply(role, author, data), verdict)


def compare_outcome(state, expected, report):
    commitment = state.commitment
    encoded = commitment.encode() if commitment else None
    public_key = commitment.public_key().encode() if commitment else None
    report.compare("chosen dealers", sorted(state.chosen or []), sorted(expected["chosen"]))
    report.compare("final", state.final(), expected["final"])
    report.compare("new commitment", encoded, optional_bytes(expected["commitment"]))
    report.compare("public key", public_key, optional_bytes(expected["public_key"]))
    if commitment and state.old:
        report.compare("the key is the old one", public_key, state.old.public_key().encode())


def new_rows(state, secrets, report):
    """The new rows of the receivers with known secrets, as far as they can be computed."""
    dealt = {i: dealt_rows(state, i, secrets, report) for i in state.deals}
    rows = {}
    for j in secrets:
        own = {}
        for i in state.chosen:
            own[i] = dealt[i].get(j) or repaired_row(state, i, j, dealt[i], report)
        if all(own.values()):
            rows[j] = sharing.combine_rows(state.factors(), own)
    return rows


def dealt_rows(state, dealer, secrets, report):
    """The rows that the receivers with known secrets decrypt from one dealing."""
    rows, deal = {}, state.deals[dealer]
    for j, r in secrets.items():
        if j not in deal.ciphertexts:
            report.say(f"note  dealer {dealer} has no ciphertext for receiver {j}")
            continue
        rows[j] = state.decrypted_row(dealer, j, r * deal.E)
        if rows[j] is None:
            report.say(f"note  the ciphertext of dealer {dealer} for receiver {j} is wrong")
            del rows[j]
    return rows


def repaired_row(state, dealer, receiver, rows, report):
    """The row from the common values of the holders whose rows are known."""
    commitment = state.deals[dealer].commitment
    values = {}
    for k, row in rows.items():
        value = sharing.evaluate(row, receiver)
        if not value * B == commitment.value(receiver, k):
            raise Difference(f"common value of {receiver} and {k} in the dealing of {dealer}")
        if len(values) <= state.new_f:
            values[k] = value
    if len(values) <= state.new_f:
        report.say(f"note  too few rows are known to repair row {receiver} of dealer {dealer}")
        return None
    row = sharing.interpolate(values)
    report.say(f"note  row {receiver} of dealer {dealer} is repaired from {sorted(values)}")
    fits = commitment.has_row(receiver, row)
    report.compare(f"repaired row {receiver} fits the commitment of {dealer}", fits, True)
    return row


def check_only(state, receiver, row, report):
    """Check an expected row that cannot be computed from the secrets."""
    row = sharing.decode_row(bytes.fromhex(row))
    fits = bool(state.commitment) and state.commitment.has_row(receiver, row)
    report.compare(f"new row {receiver}, only with the commitment", fits, True)


def compare_proofs(state, log, secrets, rows, report):
    """Compute the proofs of receivers with known secrets again: their nonces are derived too."""
    replayed = State(state.run, state.old, state.new_f)
    for number, logged in enumerate(log, 1):
        data, role, j = bytes.fromhex(logged["bytes"]), logged["author_role"], logged["author"]
        if replayed.apply(role, j, data) != APPLIED or role != "receiver" or j not in secrets:
            continue
        _, entry = entries.decode(data)
        r = secrets[j]
        if isinstance(entry, entries.Key):
            proof = entries.prove(r, [B], entries.context(state.run, "session key", j))
        elif isinstance(entry, entries.Complain):
            about = entries.context(state.run, "complaint", entry.dealer, j)
            proof = entries.prove(r, [B, state.deals[entry.dealer].E], about)
        elif isinstance(entry, entries.Confirm) and j in rows:
            proof = entries.prove(rows[j][0], [B], entries.context(state.run, "possession", j))
        else:
            continue
        report.compare(f"proof in entry {number} of receiver {j}", proof, entry.proof)


def verify_signing(state, signing, what, report):
    """Check each share of a session, and the signature."""
    group = state.commitment
    session, message = bytes.fromhex(signing["session"]), bytes.fromhex(signing["message"])
    count = len(session) - 1 - 65 * session[0] - len(message)
    report.compare(f"{what}, bytes of the message's count", frost.COUNT_BYTES, count)
    session = frost.Session.decode(session)
    report.compare(f"{what}, message", session.message, message)
    report.compare(f"{what}, number of signers", len(session.commitments), state.new_f + 1)
    current = frost.Round(group.public_key(), session.commitments, message)
    answers = {int(i): bytes.fromhex(answer) for i, answer in signing["answers"].items()}
    report.compare(f"{what}, signers", sorted(answers), sorted(session.commitments))
    answers = {i: frost.Answer.decode(answer) for i, answer in answers.items()}
    for i, answer in answers.items():
        digest = frost.session_digest(group, session)
        report.compare(f"{what}, digest in the answer of server {i}", answer.digest, digest)
    for i, answer in answers.items():
        right = current.share_is_right(i, answer.share, group.verification_share(i))
        report.compare(f"{what}, the share of server {i} is right", right, True)
    signature = current.combine(answer.share for answer in answers.values())
    report.compare(f"{what}, signature", signature, bytes.fromhex(signing["signature"]))
    accepted = edwards.verify(group.public_key().encode(), message, signature)
    report.compare(f"{what}, RFC 8032 accepts the signature", accepted, True)


def main(arguments):
    if len(arguments) >= 2 and arguments[0] == "verify":
        for path in arguments[1:]:
            report = Report()
            try:
                verify(json.loads(Path(path).read_text()), report)
            except (Difference, Refused) as error:
                print(f"DIFFERENT  {path}: {error}")
                return 1
            print(f"{path}: {report.comparisons} comparisons, all the same")
        return 0
    if arguments == ["selftest"]:
        import selftest

        return selftest.run()
    if len(arguments) == 2 and arguments[0] == "example":
        import example

        directory = Path(arguments[1])
        directory.mkdir(parents=True, exist_ok=True)
        for name, transcript in example.transcripts().items():
            path = directory / f"{name}.json"
            path.write_text(json.dumps(transcript, indent=1) + "\n")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
