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

import example
import selftest
from edwards import Refused
from verification import Difference, Report, verify


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
        return selftest.run()
    if len(arguments) == 2 and arguments[0] == "example":
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
