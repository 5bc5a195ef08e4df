// Bottom sheet of a phone: attention of the pinned word.

import { shortWeight } from "../data/format.ts";
import { summary } from "../data/head_summary.ts";
import { named, rowOf } from "../data/tokens.ts";
import { cssOf } from "../paint/theme.ts";
import { headName } from "../state/selection.ts";
import { Button, Where } from "./controls.tsx";
import { useDialog, useExplorer } from "./explorer_context.ts";
import { headColor, roleLookOf } from "./selected_head.ts";

export function BottomSheet() {
  const explorer = useExplorer();
  const { session } = explorer;
  const { word } = session.selection.value;
  const ref = useDialog(explorer.open.value === "word" && word !== null);
  if (explorer.open.value !== "word" || word === null) return null;
  const side = session.lead.value;
  const { rows, columns } = side.filtered;
  const row = rowOf(rows, session.place(side, word, "query"));
  const reading = session.row(side, row);
  if (!reading) return null;
  const { top, others, rest } = summary(reading.weights, 12, 0.01);
  const color = cssOf(headColor(session, side));
  const selection = session.selection.value;
  const step = (by: number) => {
    const next = rows[(row + by + rows.length) % rows.length];
    session.update({ word: next.positions[0] });
  };
  return (
    <div class="cover sheet-cover">
      <div
        class="sheet pop"
        role="dialog"
        aria-modal="true"
        aria-label={`What ${named(rows[row])} reads`}
        tabIndex={-1}
        ref={ref}
      >
        <div class="grab" aria-hidden="true" />
        <div class="h">
          <Button class="b" aria-label="Word before" onClick={() => step(-1)}>
            ◂
          </Button>
          <span class="gap" />
          <span>
            <b>
              <bdi>{named(rows[row])}</bdi>
            </b>{" "}
            reads from
          </span>
          <span class="gap" />
          <Button class="b" aria-label="Next word" onClick={() => step(1)}>
            ▸
          </Button>
          <Button class="b" aria-label="Close" onClick={explorer.close}>
            ×
          </Button>
        </div>
        <p class="mut center">
          {headName(selection)} · {roleLookOf(session, side, selection).name}
        </p>
        <div class="list">
          {top.map(({ index, weight }) => (
            <div class="sr" key={index}>
              <span>
                <bdi>{named(columns[index])}</bdi>
                <Where entries={columns} index={index} />
              </span>
              <span class="hb">
                <i style={{ width: `${100 * weight}%`, background: color }} />
              </span>
              <span class="num">{shortWeight(weight)}</span>
            </div>
          ))}
          {others > 0 && (
            <p class="mut center">
              the other {others} tokens: {shortWeight(rest)} together
            </p>
          )}
        </div>
      </div>
    </div>
  );
}
