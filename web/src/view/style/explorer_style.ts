// Style sheet of an explorer, inside its shadow root.

import effect from "./effect.css";
import evidence from "./evidence.css";
import frame from "./frame.css";
import head from "./head.css";
import heads from "./heads.css";
import popovers from "./popovers.css";
import sentence from "./sentence.css";
import small from "./small.css";

export const sheet = [frame, sentence, heads, head, evidence, effect, popovers, small].join("\n");
