#!/usr/bin/env node
import { readFileSync } from 'node:fs';

const [a, b] = process.argv.slice(2).map(p => readFileSync(p));
let other = 0;
for (let i = 0; i < Math.min(a.length, b.length); i++) other += a[i] !== b[i];
process.exit(other / a.length > 0.02 ? 1 : 0);
