// Error message in place of a blank page.

import { render } from "preact";
import { PayloadError } from "../data/parse.ts";
import { SANS } from "../paint/theme.ts";

export function showError(host: HTMLElement, error: unknown, what = "trace"): void {
  const isPayload = error instanceof PayloadError;
  const style = {
    font: `15px/1.5 ${SANS}`,
    maxWidth: "36rem",
    margin: "3rem auto",
    padding: "0 1.5rem",
  };
  const root = host.shadowRoot ?? host;
  root.replaceChildren();
  render(
    <div class="problem" role="alert" style={style}>
      <strong>headscope cannot show this {what}.</strong>
      <p>{isPayload ? error.message : `Something went wrong: ${String(error)}`}</p>
      <p>
        {isPayload
          ? "Was the file copied whole? Save it once more with headscope."
          : "This is a fault of headscope; please report it with the text above."}
      </p>
    </div>,
    root,
  );
  document.documentElement.dataset.ready = "problem";
}
