// The one style sheet of an explorer, inside its shadow root.

import controls from "./controls.css";
import frame from "./frame.css";
import media from "./media.css";
import overlays from "./overlays.css";
import panes from "./panes.css";
import tokens from "./tokens.css";

export const sheet = [frame, controls, panes, tokens, media, overlays].join("\n");
