"""Adds up yesterday."""

import sys

print("report", sys.argv[1:])
