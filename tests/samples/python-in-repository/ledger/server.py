raise SystemExit("a sample: it is never started")
