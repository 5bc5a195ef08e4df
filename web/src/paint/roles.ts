// What heads are called, and how a name looks: color, sign and word, never color alone.

import type { RoleId } from "../data/payload.ts";
import { type Rgb, rgbOfHex, type Scheme } from "./theme.ts";

export interface RoleLook {
  readonly id: RoleId | "unnamed";
  readonly sign: string;
  /** Under a thumbnail. */
  readonly short: string;
  readonly name: string;
  readonly says: string;
  readonly light: string;
  readonly dark: string;
}

const NAMED: readonly RoleLook[] = [
  {
    id: "equal",
    sign: "⇄",
    short: "equal",
    name: "equal word elsewhere",
    light: "#b8440d",
    dark: "#f57f4f",
    says: "reads the same word at another place, in the other sentence where there are two",
  },
  {
    id: "after",
    sign: "↷",
    short: "after",
    name: "after an earlier equal word",
    light: "#d9a53a",
    dark: "#f9d467",
    says: "reads what followed the same word earlier in the text (induction)",
  },
  {
    id: "previous",
    sign: "←",
    short: "prev",
    name: "previous token",
    light: "#054c7a",
    dark: "#599ef3",
    says: "reads the token right before",
  },
  {
    id: "next",
    sign: "→",
    short: "next",
    name: "next token",
    light: "#17a3e9",
    dark: "#b3defb",
    says: "reads the token right after",
  },
  {
    id: "same",
    sign: "↺",
    short: "same",
    name: "same token",
    light: "#8e31c2",
    dark: "#a04ecc",
    says: "reads the token itself",
  },
  {
    id: "broad",
    sign: "≋",
    short: "broad",
    name: "broad",
    light: "#38966f",
    dark: "#55d5b1",
    says: "spreads over at least half of what it can see",
  },
  {
    id: "first",
    sign: "⇤",
    short: "first",
    name: "first token",
    light: "#5a6673",
    dark: "#939aa3",
    says: "rests on the first token: usually it has nothing to read",
  },
  {
    id: "special",
    sign: "‖",
    short: "sep",
    name: "special tokens",
    light: "#9da4ad",
    dark: "#667483",
    says: "rests on tokens like [SEP] that mark where a text ends",
  },
  {
    id: "punctuation",
    sign: "·",
    short: "punct",
    name: "punctuation",
    light: "#c2ccd6",
    dark: "#48525e",
    says: "rests on periods and commas",
  },
];

/** A head that no rule names. Its lines have a color of their own, its swatch is hollow. */
const UNNAMED: RoleLook = {
  id: "unnamed",
  sign: "",
  short: "",
  name: "unnamed",
  light: "#b3145e",
  dark: "#ff86bb",
  says: "no rule names it on this text",
};

export const ROLES: readonly RoleLook[] = [...NAMED, UNNAMED];

export function roleLook(id: RoleId | null): RoleLook {
  return NAMED.find((role) => role.id === id) ?? UNNAMED;
}

export function roleColor(role: RoleLook, scheme: Scheme): Rgb {
  return rgbOfHex(role[scheme]);
}

/** Ink or white on a color, whichever stands out more. */
export function inkOn([red, green, blue]: Rgb): string {
  const linear = (part: number) => ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return light > 0.19 ? "#14171b" : "#ffffff";
}
