// Search for a word, a head or a role.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { printed } from "../data/tokens.ts";
import { ROLES } from "../paint/roles.ts";
import { headName } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { Button, consume } from "./controls.tsx";
import { useExplorer } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";

const MAX_WORDS = 8;

type Match = Readonly<{ label: string; about: string; choose(): void }>;

export function matchesOf(session: Session, typed: string): Match[] {
  const text = typed.trim().toLowerCase();
  const { block, filtered } = session.lead.value;
  const matches: Match[] = [];
  if (text === "") return suggestions(session);
  const [, layer, head] = (/^l?(\d+)[\s.,]*h?(\d+)$/.exec(text) ?? []).map(Number);
  if (layer !== undefined && block.has(block.layers.indexOf(layer), head)) {
    const id = { layer, head };
    matches.push({ label: headName(id), about: "head", choose: () => session.update(id) });
  }
  for (const { id, name, short } of ROLES) {
    if (!name.includes(text) && short !== text) continue;
    matches.push({ label: name, about: "role", choose: () => session.update({ role: id }) });
  }
  const words = filtered.rows.filter(({ label }) => label.toLowerCase().includes(text));
  for (const { label, positions } of words.slice(0, MAX_WORDS)) {
    const choose = () => session.update({ word: positions[0] });
    matches.push({ label: printed(label), about: `token ${positions[0]}`, choose });
  }
  return matches;
}

const SUGGESTED = 4;

/** Offered before anything is typed: heads with the largest effect, roles of this text, words. */
function suggestions(session: Session): Match[] {
  const side = session.lead.value;
  const { block, filtered } = side;
  const matches: Match[] = [];
  const effects = session.exercise.isHidden.value ? null : headEffects(session, side);
  for (const { layerIndex, head, value } of effects?.all.slice(0, SUGGESTED) ?? []) {
    const id = { layer: block.layers[layerIndex], head };
    const about = `effect ${effects!.format(value)}`;
    matches.push({ label: headName(id), about, choose: () => session.choose(id) });
  }
  const present = new Set(session.roles(side).flatMap((row) => row.map(({ role }) => role)));
  for (const { id, name } of session.exercise.isHidden.value ? [] : ROLES) {
    if (!present.has(id === "unnamed" ? null : id)) continue;
    matches.push({ label: name, about: "role", choose: () => session.update({ role: id }) });
  }
  for (const { label, positions } of filtered.rows
    .filter((row) => !row.special)
    .slice(-SUGGESTED)) {
    const choose = () => session.update({ word: positions[0] });
    matches.push({ label: printed(label), about: `token ${positions[0]}`, choose });
  }
  return matches;
}

export function Search() {
  const explorer = useExplorer();
  const { session } = explorer;
  const [typed, setTyped] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const matches = matchesOf(session, typed);
  const choose = (match: Match | undefined) => {
    match?.choose();
    if (match) explorer.close();
  };
  const keyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && typed !== "") choose(matches[0]);
    else if (event.key === "Escape") explorer.close();
    else return;
    consume(event);
  };
  return (
    <div class="pop find" role="dialog" aria-label="Find a word or a head">
      <input
        ref={input}
        type="search"
        aria-label="Word or head"
        placeholder={`a word, ${headName(session.selection.value)}, or a role`}
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={keyDown}
      />
      {matches.map((match) => (
        <Button key={`${match.label}${match.about}`} onClick={() => choose(match)}>
          <bdi>{match.label}</bdi> <span class="mut">{match.about}</span>
        </Button>
      ))}
      {typed !== "" && matches.length === 0 && <p class="mut">Nothing is called that.</p>}
    </div>
  );
}
