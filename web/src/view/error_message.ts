// Error message in place of a blank page.

import { PayloadError } from "../data/parse.ts";
import { SANS } from "../paint/theme.ts";
import { make } from "./element.ts";

export function showError(host: HTMLElement, error: unknown, what = "trace"): void {
  const isPayload = error instanceof PayloadError;
  const message = isPayload ? error.message : `Something went wrong: ${String(error)}`;
  const advice = isPayload
    ? "Was the file copied whole? Save it once more with headscope."
    : "This is a fault of headscope; please report it with the text above.";
  const box = make(
    "div",
    { class: "problem", attributes: { role: "alert" } },
    make("strong", { text: `headscope cannot show this ${what}.` }),
    make("p", { text: message }),
    make("p", { text: advice }),
  );
  Object.assign(box.style, {
    font: `15px/1.5 ${SANS}`,
    maxWidth: "36rem",
    margin: "3rem auto",
    padding: "0 1.5rem",
  });
  if (host.shadowRoot) host.shadowRoot.replaceChildren(box);
  else host.replaceChildren(box);
  document.documentElement.dataset.ready = "problem";
}
