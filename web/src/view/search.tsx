// Search for a word, a head or a role.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Entry, printed } from "../data/tokens.ts";
import { ROLES, type RoleLook } from "../paint/roles.ts";
import { type HeadId, headName } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { Button, consume } from "./controls.tsx";
import { useExplorer } from "./explorer_context.ts";
import { headEffects } from "./head_values.ts";

const MAX_WORDS = 8;

type Match = Readonly<{ label: string; about: string; choose(): void }>;

const headMatch = (session: Session, id: HeadId, about: string): Match => ({
  ...{ label: headName(id), about },
  choose: () => session.choose(id),
});

const roleMatch = (session: Session, { id, name }: RoleLook): Match => ({
  ...{ label: name, about: "role" },
  choose: () => session.update({ role: id }),
});

const wordMatch = (session: Session, { label, positions: [word] }: Entry): Match => ({
  ...{ label: printed(label), about: `token ${word}` },
  choose: () => session.update({ word }),
});

export function matchesOf(session: Session, typed: string): Match[] {
  const text = typed.trim().toLowerCase();
  const { block, filtered } = session.lead.value;
  if (text === "") return suggestions(session);
  const [, layer, head] = (/^l?(\d+)[\s.,]*h?(\d+)$/.exec(text) ?? []).map(Number);
  const isHead = layer !== undefined && block.has(block.layers.indexOf(layer), head);
  const roles = ROLES.filter(({ name, short }) => name.includes(text) || short === text);
  const words = filtered.rows.filter(({ label }) => label.toLowerCase().includes(text));
  return [
    ...(isHead ? [headMatch(session, { layer, head }, "head")] : []),
    ...roles.map((role) => roleMatch(session, role)),
    ...words.slice(0, MAX_WORDS).map((word) => wordMatch(session, word)),
  ];
}

const SUGGESTED = 4;

/** Offered before anything is typed: heads with the largest effect, roles of this text, words. */
function suggestions(session: Session): Match[] {
  const side = session.lead.value;
  const { block, filtered } = side;
  const isHidden = session.exercise.isHidden.value;
  const effects = isHidden ? null : headEffects(session, side);
  const largest = effects?.all.slice(0, SUGGESTED) ?? [];
  const present = new Set(session.roles(side).flatMap((row) => row.map(({ role }) => role)));
  const roles = isHidden ? [] : ROLES.filter(({ id }) => present.has(id === "unnamed" ? null : id));
  const words = filtered.rows.filter((row) => !row.special).slice(-SUGGESTED);
  return [
    ...largest.map(({ layerIndex, head, value }) => {
      const id = { layer: block.layers[layerIndex], head };
      return headMatch(session, id, `effect ${effects!.format(value)}`);
    }),
    ...roles.map((role) => roleMatch(session, role)),
    ...words.map((word) => wordMatch(session, word)),
  ];
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
