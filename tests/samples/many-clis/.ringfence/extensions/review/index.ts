import { rules } from "./lib/rules";

export default (api: { command(name: string, run: () => string): void }) =>
  api.command("review", () => rules.join("\n"));
