// Calling card of a head: one square picture with its name, role, text, interval and effect.

import { indexOfHead } from "../data/effects.ts";
import { capital, ordinal, percent, shortWeight } from "../data/format.ts";
import { isSink } from "../data/head_summary.ts";
import { inText, joinedTokens, printed } from "../data/tokens.ts";
import { shorten } from "../layout/matrix_layout.ts";
import { type Mark, rect, type Scene } from "../layout/scene.ts";
import { widestEms } from "../paint/painter.ts";
import { inkOn, roleColor } from "../paint/roles.ts";
import { cssOf, mix } from "../paint/theme.ts";
import { headCode, headName } from "../state/selection.ts";
import type { Session, Side } from "../state/session.ts";
import { headEffects } from "./head_values.ts";
import { asideText, headColor, roleLookOf, roleText, titleParts } from "./selected_head.ts";

const SIZE = 640;
const LEFT = 40;
/** Lines of text on a card, and words of a longer text. */
const MAX_LINES = 5;
const LINE = 44;

export function headCard(session: Session): Scene {
  const theme = session.theme.peek();
  const side = session.lead.peek();
  const selection = session.selection.peek();
  const { ink, soft } = theme.tone;
  const look = roleLookOf(session, side, selection);
  const color = roleColor(look, theme.scheme);
  const marks: Mark[] = [];
  const write = (
    y: number,
    text: string,
    size: number,
    style: { fill?: string; bold?: boolean; serif?: boolean } = {},
  ) => marks.push({ kind: "text", x: LEFT, y, text, size, anchor: "start", fill: ink, ...style });
  marks.push(rect(0, 0, SIZE, 12, cssOf(color)));
  write(66, side.base.model, 17, { fill: soft });
  write(122, headName(selection), 52, { bold: true });
  if (!asideText(session)) {
    const text = `${look.symbol} ${look.name}`.trim();
    marks.push(rect(LEFT, 142, widestEms([text]) * 18 * 1.08 + 26, 32, cssOf(color)));
    const place = { x: LEFT + 12, y: 164, size: 18, anchor: "start" } as const;
    marks.push({ kind: "text", ...place, text, fill: inkOn(color), bold: true });
  }
  const { links, lead } = titleParts(session);
  const link = links[0];
  const said = link
    ? `${lead} ${printed(link.from.label)} → ${printed(link.to.label)} ${shortWeight(link.weight)}`.trim()
    : lead;
  write(218, shorten(said, 52), 24, { serif: true });
  marks.push(...textMarks(session, side));
  let y = 506;
  for (const fact of factsOf(session, side)) {
    write(y, shorten(fact, 62), 18);
    y += 27;
  }
  const address = location.protocol === "file:" ? "headscope" : location.href.split("#")[0];
  write(SIZE - 26, shorten(`${address} #${headCode(selection)}`, 80), 13, { fill: soft });
  return { width: SIZE, height: SIZE, background: theme.tone.panel, marks };
}

/** The text with what the word in focus reads, in lines. */
function textMarks(session: Session, side: Side): Mark[] {
  const theme = session.theme.peek();
  const color = headColor(session, side);
  const tokens = side.block.keyTokens;
  const focus = session.focus(side);
  const read = focus.row >= 0 ? session.row(side, focus.row)?.weights : null;
  const pinned = focus.row >= 0 ? side.filtered.rows[focus.row].positions[0] : -1;
  const joined = joinedTokens(tokens.texts, tokens.words);
  const isPlain = side.filtered.columns.length === tokens.texts.length;
  const marks: Mark[] = [];
  const size = 29;
  let [x, y] = [LEFT, 276];
  tokens.texts.forEach((token, i) => {
    const text = inText(printed(token));
    const width = widestEms([text], true) * size;
    if (x + width > SIZE - LEFT) [x, y] = [LEFT, y + LINE];
    if (y > 276 + LINE * (MAX_LINES - 1)) return;
    const weight = (isPlain && read?.[i]) || 0;
    const ground =
      i === pinned ? theme.rgb.ink : mix(theme.rgb.panel, color, 0.08 + 0.55 * weight ** 0.7);
    const isMarked = i === pinned || weight >= 0.02;
    if (isMarked) marks.push(rect(x - 3, y - 29, width + 6, 39, cssOf(ground)));
    const fill = isMarked ? inkOn(ground) : theme.tone.ink;
    marks.push({ kind: "text", x, y, text, size, serif: true, anchor: "start", fill });
    x += width + (joined[i + 1] ? 0 : 9);
  });
  return marks;
}

/** Role, interval over the corpus and effect, a line each. */
function factsOf(session: Session, side: Side): string[] {
  const selection = session.selection.peek();
  const layerIndex = session.layerIndex(side.block);
  const { role } = session.roles(side)[layerIndex][selection.head];
  const kind = isSink(role) ? "Attention sink" : "Role";
  const aside = capital(asideText(session));
  const facts = [aside || `${kind}: ${roleText(side, selection)}`];
  const card = session.header.evidence?.cards[headCode(selection)];
  const [most] = [...(card?.looks ?? [])].sort((a, b) => b.value - a.value);
  if (most) {
    const { title, value, low, high } = most;
    const range = low !== null && high !== null ? ` [${percent(low)}, ${percent(high)}]` : "";
    facts.push(`Over the corpus: ${title} ${percent(value)}${range}`);
  }
  const effects = headEffects(session, side);
  const index = effects ? indexOfHead(effects.all, layerIndex, selection.head) : -1;
  if (effects && index >= 0) {
    const value = `${effects.format(effects.all[index].value)} ${effects.unit}`.trim();
    const place = `${ordinal(index + 1)} of ${effects.all.length}`;
    facts.push(`Effect in this text: ${value}, ${place}`, `(${effects.what} without the head)`);
  }
  return facts;
}
