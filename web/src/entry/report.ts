// Offline report: reads its data from the document.

import { bytesOfBase64, gunzip } from "../data/decode.ts";
import { PayloadError, parseReport } from "../data/parse.ts";
import { showReport } from "../report/report_page.tsx";
import { showError } from "../view/error_message.tsx";

async function start(host: HTMLElement): Promise<void> {
  const element = document.querySelector("script[data-buffer]");
  if (!element) throw new PayloadError("The data of this page is cut off or damaged.");
  const bytes = await gunzip(bytesOfBase64(element.textContent ?? ""));
  const report = parseReport(new TextDecoder().decode(bytes));
  element.remove();
  showReport(host, report);
  // Figures are drawn once their width is measured.
  await new Promise((resolve) => setTimeout(resolve));
  document.documentElement.dataset.ready = "true";
}

const host = document.getElementById("headscope");
if (host) start(host).catch((error: unknown) => showError(host, error, "report"));
