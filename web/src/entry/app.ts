// The lab of `headscope serve`: a text to type, and the explorer of what the model made of it.

import { parseJson } from "../data/parse.ts";
import { showError } from "../view/error_message.ts";
import { Lab, type LabStart } from "../view/lab.tsx";

const host = document.getElementById("headscope");
const start = document.getElementById("headscope-start")?.textContent ?? "";
if (host) {
  try {
    new Lab(host, parseJson(start) as LabStart);
  } catch (error) {
    showError(host, error);
  }
}
