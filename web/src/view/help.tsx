// What everything is, and the keys.

import { useEffect, useRef } from "preact/hooks";
import { ROLES } from "../paint/roles.ts";
import { useHere } from "./context.ts";
import { KEYS } from "./keyboard.ts";
import { Swatch } from "./parts.tsx";

export function Help() {
  const here = useHere();
  const isOpen = here.open.value === "help";
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (isOpen) ref.current?.focus();
  }, [isOpen]);
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
        <h2 class="sec">What you see</h2>
        <p>
          <b>What was read?</b> The text on top: hover a word to see what it reads, click to pin it.{" "}
          <b>By whom?</b> Every square is a head, a part of the model that reads in its own way.{" "}
          <b>So what?</b> The last pane says what changes without it.
        </p>
        <div class="cols">
          <div>
            <h3>Roles</h3>
            {ROLES.map((look) => (
              <p class="role-line" key={look.id}>
                <Swatch look={look} />
                <span>
                  <b>{look.name}</b> {look.says}
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
        <button type="button" class="go" onClick={here.close}>
          Close
        </button>
      </div>
    </div>
  );
}
