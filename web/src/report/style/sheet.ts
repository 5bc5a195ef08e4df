// The style sheet of a report: the explorer's controls and tooltip, and its own page.

import controls from "../../view/style/controls.css";
import overlays from "../../view/style/overlays.css";
import card from "./card.css";
import figure from "./figure.css";
import page from "./page.css";
import print from "./print.css";

export const sheet = [controls, overlays, page, figure, card, print].join("\n");
