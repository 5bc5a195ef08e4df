// Finding a token: matches are marked while typing, Enter pins the next one.

import { printed } from "../data/axis.ts";
import { make } from "./element.ts";
import type { Scope } from "./scope.ts";

export class Search {
  private readonly input = make("input", {
    attributes: {
      type: "search",
      placeholder: "Find token  /",
      "aria-label": "Find a token; Enter pins the next match",
      spellcheck: "false",
    },
  });
  readonly element = make("div", { class: "search" }, this.input);
  private next = 0;

  constructor(
    private readonly scope: Scope,
    private readonly changed: (row: number | null) => void,
  ) {
    this.input.addEventListener("input", () => {
      this.next = 0;
      scope.search = this.input.value.trim().toLowerCase();
      changed(this.matches()[0] ?? null);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "Enter") this.pin();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  open(): void {
    this.input.focus();
    this.input.select();
  }

  private close(): void {
    this.input.value = "";
    this.scope.search = "";
    this.input.blur();
    this.changed(null);
  }

  private matches(): number[] {
    const { search } = this.scope;
    if (search === "") return [];
    const { rows } = this.scope.lens(this.scope.leading);
    return rows.flatMap((entry, row) =>
      printed(entry.label).toLowerCase().includes(search) ? [row] : [],
    );
  }

  private pin(): void {
    const matches = this.matches();
    if (matches.length === 0) return;
    const row = matches[this.next++ % matches.length];
    const { rows } = this.scope.lens(this.scope.leading);
    this.scope.store.update({ queries: [rows[row].positions[0]] });
    this.changed(row);
  }
}
