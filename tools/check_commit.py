"""Check a commit message: ``python tools/check_commit.py FILE``, run by pre-commit (``commit-msg``).

The subject is imperative and has at most 72 characters, an empty line follows, and the body gives the reason and the
evidence. Merges, reverts and fixups, whose messages git writes, are not checked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAX_SUBJECT = 72
_SUBJECT = re.compile(r"(\[[a-z0-9_, /.-]+\] )?(?P<verb>[A-Z][\w-]*)\b.*[^.]$")
_NO_IMPERATIVE = re.compile(r"(?i)(a|an|the|no|it|this|that|what|\w{3,}ed|\w{3,}ing)$")
"""Words with which a statement or a past tense begins; other words may be verbs."""
_IMPERATIVES = ("Bring", "Embed", "Feed", "Need", "Proceed", "Seed", "Shed", "Speed", "String")
_WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def check_message(message: str) -> list[str]:
    """Return what is wrong with a commit message, without git's comment lines; nothing if it is as it should be."""
    lines = [line.rstrip() for line in message.split("\n# ------------------------ >8")[0].splitlines()]
    lines = [line for line in lines if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return ["the message is empty"]
    subject, body = lines[0], lines[1:]
    if subject.startswith(_WRITTEN_BY_GIT):
        return []
    errors = []
    if len(subject) > MAX_SUBJECT:
        errors.append(f"the subject has {len(subject)} characters; write at most {MAX_SUBJECT}")
    match = _SUBJECT.match(subject)
    if match is None:
        errors.append("write the subject as '[folder] Verb ...' or 'Verb ...', without a period at its end")
    elif _NO_IMPERATIVE.match(match["verb"]) and match["verb"] not in _IMPERATIVES:
        errors.append(f"begin the subject with a verb in the imperative, such as Add or Refuse, not {match['verb']!r}")
    if body and body[0]:
        errors.append("leave the second line empty")
    if not any(body):
        errors.append("write a body: why, and the evidence (a figure, a test, the command that shows it)")
    return errors


def main() -> int:
    """Print what is wrong with the message in the file that git names; return 1 if anything is."""
    errors = check_message(Path(sys.argv[1]).read_text())
    for error in errors:
        print(f"commit message: {error}")
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
