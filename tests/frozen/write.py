"""Write the subjects' lists from the code: `python -m tests.frozen.write [subject...]`.

`make freeze` calls this, and writes the lists that need a server or a JVM as well.
"""

from __future__ import annotations

import sys

from tests.frozen.lists import SUBJECTS, lines_of, write


def main(chosen: list[str]) -> int:
    unknown = set(chosen) - set(SUBJECTS)
    if unknown:
        print(f"unknown subjects: {', '.join(sorted(unknown))}; known: {', '.join(SUBJECTS)}")
        return 2
    for subject in chosen or SUBJECTS:
        if write(subject, lines_of(subject)):
            print(f"wrote tests/frozen/{subject}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
