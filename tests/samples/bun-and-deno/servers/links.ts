// Keeps links for later.
const kept = new Map<string, string>();

export const keep = (name: string, url: string) => kept.set(name, url);
