#!/usr/bin/env python3
"""Prints the words of a deck, one slide a paragraph."""

import sys
import zipfile


def words(part: bytes) -> str:
    text = part.decode("utf-8", "replace")
    pieces = text.split("<a:t>")[1:]
    return " ".join(piece.split("</a:t>")[0] for piece in pieces)


def main() -> int:
    with zipfile.ZipFile(sys.argv[1]) as deck:
        for name in sorted(deck.namelist()):
            if name.startswith("ppt/slides/slide"):
                print(name, words(deck.read(name)), sep="\n", end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
