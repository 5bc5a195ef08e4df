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
            them, colored by what they do with this text. Reading is not yet using, so <b>Effect</b>{" "}
            shows what changes when a head is switched off.
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

/** Example sentence with one arc, annotated. */
function Picture() {
  return (
    <svg
      class="picture"
      viewBox="0 0 342 104"
      role="img"
      aria-label="An arc from the word She to the word doctor with 0.32: She reads doctor. Behind it, what may come next."
    >
      <path class="arc" d="M64 48C64 14 194 14 194 48" />
      <text x="129" y="16" class="n">
        0.32
      </text>
      <g class="words">
        <text x="2" y="66">
          The
        </text>
        <text x="38" y="66">
          doctor
        </text>
        <text x="92" y="66">
          asked …
        </text>
        <rect x="172" y="50" width="44" height="22" rx="4" />
        <text x="180" y="66" class="pin">
          She
        </text>
      </g>
      <path class="line" d="M64 72V82M194 76V82M218 61H236" />
      <text x="64" y="96" class="s">
        … from this word
      </text>
      <text x="176" y="96" class="s">
        this word reads …
      </text>
      <text x="248" y="52" class="t">
        said
      </text>
      <text x="248" y="70" class="t">
        asked
      </text>
      <rect x="284" y="45" width="40" height="7" rx="1" />
      <rect x="284" y="63" width="18" height="7" rx="1" />
      <text x="288" y="96" class="s">
        what may come next
      </text>
    </svg>
  );
}
