// Story: captions, each with a selection.

import { parseHead } from "../state/selection.ts";
import type { Session } from "../state/session.ts";
import { Button } from "./controls.tsx";
import { useSession } from "./explorer_context.ts";

/** Go to a step of the story; after the last one it closes. */
export function goTo(session: Session, step: number): void {
  const { story } = session.store;
  if (step < 1 || step > story.length) {
    session.update({ story: step > story.length ? -1 : 0 });
    return;
  }
  const { selection } = story[step - 1];
  session.store.open(selection, { story: step, ...paneOf(session, selection) });
}

/** Pane that a step is about, on a phone. */
function paneOf(session: Session, selection: string): { pane?: number } {
  const fields = new URLSearchParams(selection);
  if (session.layout.peek() !== "phone" || fields.has("pane")) return {};
  return { pane: fields.get("tab") === "effect" ? 3 : parseHead(fields.get("head") ?? "") ? 2 : 1 };
}

export function StoryBar() {
  const session = useSession();
  const { story } = session.store;
  const { story: step } = session.selection.value;
  if (story.length === 0 || step < 0) return null;
  const caption =
    step > 0
      ? story[step - 1].caption
      : "What did the model read, which head read it, and does it matter?";
  const isLast = step === story.length;
  return (
    <footer class="story">
      <span class="n num">{step > 0 ? `${step} / ${story.length}` : "Tour"}</span>
      <p aria-live="polite">{caption}</p>
      {step > 0 && (
        <span class="dots">
          {story.map((item, i) => (
            <Button
              key={`${i}${item.selection}`}
              aria-label={`Step ${i + 1}`}
              aria-current={step === i + 1 ? "step" : undefined}
              onClick={() => goTo(session, i + 1)}
            />
          ))}
        </span>
      )}
      {step > 1 && (
        <Button class="b" aria-label="Back" onClick={() => goTo(session, step - 1)}>
          ◂
        </Button>
      )}
      {step === 0 && <Button onClick={() => session.update({ story: -1 })}>Skip</Button>}
      <Button class="go" onClick={() => goTo(session, step + 1)}>
        {step === 0
          ? `Start, ${story.length} ${story.length > 1 ? "steps" : "step"} ▸`
          : isLast
            ? "Done"
            : "Next ▸"}
      </Button>
      {step > 0 && (
        <Button aria-label="Close the tour" onClick={() => session.update({ story: -1 })}>
          ×
        </Button>
      )}
    </footer>
  );
}
