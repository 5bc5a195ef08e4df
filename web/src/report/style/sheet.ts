// The style sheet of a report.

import card from "./card.css";
import controls from "./controls.css";
import figure from "./figure.css";
import page from "./page.css";
import print from "./print.css";

export const sheet = [controls, page, figure, card, print].join("\n");
