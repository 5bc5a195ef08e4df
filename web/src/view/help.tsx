// Help: introduction, roles, keys.

import { ROLES } from "../paint/roles.ts";
import { Button, Swatch } from "./controls.tsx";
import { useDialog, useExplorer } from "./explorer_context.ts";
import { KEYS } from "./keyboard.ts";
import { goTo } from "./story.tsx";

export function Help() {
  const explorer = useExplorer();
  const isOpen = explorer.open.value === "help";
  const ref = useDialog(isOpen);
  if (!isOpen) return null;
  return (
    <div class="cover">
      <div
        class="pop help"
        role="dialog"
        aria-modal="true"
        aria-label="Help"
        tabIndex={-1}
        ref={ref}
      >
        <h2 class="sec">In three sentences</h2>
        <div class="three">
          <Picture />
          <p>
            A <b>head</b> is a small reader inside the model: for every word it decides which words
            to read, and how much (the shares add up to 1). A model has many; the table shows all of
            them, colored by role, by effect or by another value. Reading is not yet using, so{" "}
            <b>Effect</b> shows what changes when a head is switched off.
          </p>
        </div>
        <div class="cols">
          <div>
            <h3>Roles</h3>
            {ROLES.map((look) => (
              <p class="role-line" key={look.id}>
                <Swatch look={look} />
                <span>
                  <b>{look.name}</b> {look.description}
                </span>
              </p>
            ))}
          </div>
          <div>
            <h3>Keys</h3>
            <table>
              <tbody>
                {KEYS.map(([keys, meaning]) => (
                  <tr key={keys}>
                    <th scope="row">
                      <kbd>{keys}</kbd>
                    </th>
                    <td>{meaning}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </div>
        <div class="ends-row">
          <Button
            class="b"
            onClick={() => {
              explorer.close();
              goTo(explorer.session, 1);
            }}
          >
            ▸ Tour
          </Button>
          <Button class="go" onClick={explorer.close}>
            Close
          </Button>
        </div>
      </div>
    </div>
  );
}

const PICTURE = [
  [129, 16, "n", "0.32"],
  [2, 66, "word", "The"],
  [38, 66, "word", "doctor"],
  [92, 66, "word", "asked …"],
  [180, 66, "word pin", "She"],
  [64, 96, "s", "… from this word"],
  [176, 96, "s", "this word reads …"],
  [248, 52, "t", "said"],
  [248, 70, "t", "asked"],
  [288, 96, "s", "what may come next"],
] as const;

function Picture() {
  return (
    <svg
      class="picture"
      viewBox="0 0 342 104"
      role="img"
      aria-label="An arc from the word She to the word doctor with 0.32: She reads doctor. Behind it, what may come next."
    >
      <path class="arc" d="M64 48C64 14 194 14 194 48" />
      <rect class="pinned" x="172" y="50" width="44" height="22" rx="4" />
      <path class="line" d="M64 72V82M194 76V82M218 61H236" />
      <rect x="284" y="45" width="40" height="7" rx="1" />
      <rect x="284" y="63" width="18" height="7" rx="1" />
      {PICTURE.map(([x, y, kind, text]) => (
        <text key={text} x={x} y={y} class={kind}>
          {text}
        </text>
      ))}
    </svg>
  );
}
