import type { Api } from "pi";

export default function (api: Api) {
  api.on("turn_end", ({ usage }) => {
    api.ui.status(`${usage.tokens} tokens`);
  });
}
