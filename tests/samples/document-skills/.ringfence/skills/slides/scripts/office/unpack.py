#!/usr/bin/env python3
"""Deck to folder."""
import shutil
import sys

shutil.unpack_archive(sys.argv[1], sys.argv[2], "zip")
