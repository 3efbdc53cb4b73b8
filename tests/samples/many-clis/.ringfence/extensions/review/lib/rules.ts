export const rules = ["small", "tested", "named"];
