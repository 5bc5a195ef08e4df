// Context of a report: its tooltip, the open card, numbers of figures.

import { signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { HeadId, Report } from "../../generated/report.ts";
import type { Tip } from "../view/controls.tsx";

export class ReportContext {
  readonly tip = signal<Tip | null>(null);
  readonly chosen = signal<HeadId | null>(null);
  /** `Fig. 3` or `Table 1` by figure, in the order of the page. */
  readonly numbers = new Map<string, string>();

  constructor(readonly report: Report) {
    let [figures, tables] = [0, 0];
    for (const { id, kind } of report.sections.flatMap((section) => section.figures)) {
      this.numbers.set(id, kind === "table" ? `Table ${++tables}` : `Fig. ${++figures}`);
    }
  }

  openCard(id: HeadId): void {
    if (this.cardOf(id)) this.chosen.value = id;
  }

  cardOf([subject, layer, head]: HeadId) {
    return this.report.cards[subject]?.find((card) => card.layer === layer && card.head === head);
  }

  titleOf(subject: number): string {
    return this.report.subjects[subject].title;
  }

  showTip(place: Pick<Tip, "clientX" | "clientY">, heading: string, rows: Tip["rows"]): void {
    this.tip.value = { clientX: place.clientX, clientY: place.clientY, heading, rows };
  }

  hideTip = (): void => {
    this.tip.value = null;
  };
}

export const Context = createContext<ReportContext | null>(null);

export function useReport(): ReportContext {
  return useContext(Context)!;
}
