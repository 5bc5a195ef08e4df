// Lab of `headscope serve`: a form for texts, and an explorer of their traces.

import { requestTrace } from "../data/backend.ts";
import { parseJson } from "../data/parse.ts";
import { showError } from "../view/error_message.tsx";
import { Lab, type LabStart } from "../view/lab.tsx";

const host = document.getElementById("headscope");
const start = document.getElementById("headscope-start")?.textContent ?? "";
if (host) {
  try {
    new Lab(host, parseJson(start) as LabStart, { requestTrace });
  } catch (error) {
    showError(host, error);
  }
}
