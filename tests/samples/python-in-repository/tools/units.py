#!/usr/bin/env python3
"""Converts lengths. It needs nothing but itself."""

FACTORS = {"m": 1.0, "km": 1000.0, "mile": 1609.344}


def convert(value: float, source: str, target: str) -> float:
    return value * FACTORS[source] / FACTORS[target]
