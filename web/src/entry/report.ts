// The offline report: reads its data from the document itself.

import { bytesOfBase64, gunzip } from "../data/decode.ts";
import { PayloadError } from "../data/payload.ts";
import { parseReport } from "../report/data.ts";
import { ReportPage } from "../report/page.ts";
import { sheet } from "../report/style/sheet.ts";
import { showProblem } from "../view/error_message.ts";

async function start(host: HTMLElement): Promise<void> {
  const element = document.querySelector("script[data-buffer]");
  if (!element) throw new PayloadError("The data of this page is cut off or damaged.");
  const bytes = await gunzip(bytesOfBase64(element.textContent ?? ""));
  const report = parseReport(new TextDecoder().decode(bytes));
  element.remove();
  const style = new CSSStyleSheet();
  style.replaceSync(sheet);
  document.adoptedStyleSheets = [style];
  new ReportPage(host, report);
  document.documentElement.dataset.ready = "true";
}

const host = document.getElementById("headscope");
if (host) start(host).catch((error: unknown) => showProblem(host, error, "report"));
