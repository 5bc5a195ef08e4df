// Offline page: reads its data from the document.

import { openDocument } from "../data/trace.ts";
import { Session } from "../state/session.ts";
import { showError } from "../view/error_message.tsx";
import { mount } from "../view/explorer.tsx";

async function start(host: HTMLElement): Promise<void> {
  const { header, traces } = await openDocument();
  const session = new Session(header, traces, null, location.hash.slice(1));
  // A page inside a frame (about:srcdoc) has no address.
  const hasAddress = location.protocol !== "about:";
  const explorer = mount(host, session, {
    changed: (fragment) => {
      if (hasAddress) history.replaceState(null, "", `#${fragment}`);
    },
    lab: null,
    around: null,
  });
  addEventListener("hashchange", () => session.open(location.hash.slice(1)));
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) explorer.key(event);
  });
  document.documentElement.dataset.ready = "true";
}

const host = document.getElementById("headscope");
if (host) start(host).catch((error: unknown) => showError(host, error));
