import { next } from './version.mjs';

export default async ({ agent, input }) =>
  agent(`write notes for ${next(input.version)}`);
