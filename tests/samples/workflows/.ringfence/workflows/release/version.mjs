export const next = v => v.replace(/\d+$/, n => String(Number(n) + 1));
