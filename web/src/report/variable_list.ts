// The list of all variables that have a value for each head.

import { withInterval } from "../data/format.ts";
import { type RoleLook, roleLook } from "../paint/roles.ts";
import { make } from "../view/element.ts";
import type { HeadId, HeadsFigure, Report, Variable } from "./data.ts";
import type { TooltipRow } from "./tooltip.ts";

export function nameOf({ group, label }: Variable): string {
  return label ? `${group}: ${label}` : group;
}

/** What is told of one head by a variable; null where the model has no values of it. */
export function valueAt(
  variable: Variable,
  subject: number,
  row: number,
  head: number,
): TooltipRow | null {
  const values = variable.values[subject];
  if (!values) return null;
  const [value, low, high] = [values.value, values.low, values.high].map(
    (all) => all?.[row]?.[head],
  );
  const said = withInterval(value, low, high, variable.share);
  const shown = variable.share ? said : `${said} ${variable.units}`;
  return { label: nameOf(variable), value: shown.trim() };
}

/** The figure of all heads, which every report of heads has. */
export function headsFigure(report: Report): HeadsFigure | null {
  const all = report.sections.flatMap((section) => section.figures);
  return all.find((figure) => figure.kind === "heads") ?? null;
}

export function variablesOf(report: Report): Variable[] {
  return headsFigure(report)?.variables ?? [];
}

/** How a head looks by what it does over the corpus. */
export function roleOf(report: Report, [subject, layer, head]: HeadId): RoleLook {
  const row = report.subjects[subject].layers.indexOf(layer);
  return roleLook(headsFigure(report)?.roles[subject]?.[row]?.[head] || null);
}

/** A drop-down list of variables, grouped as their metrics are. */
export function variableList(
  label: string,
  variables: readonly Variable[],
  change: (variable: Variable) => void,
  first?: { readonly label: string; choose(): void },
): { element: HTMLElement; set(variable: Variable): void } {
  const list = make("select", {
    attributes: { "aria-label": label },
    on: {
      change: () => {
        const variable = variables.find((one) => one.id === list.value);
        if (variable) change(variable);
        else first?.choose();
      },
    },
  });
  if (first) list.append(make("option", { text: first.label, attributes: { value: "" } }));
  const groups = new Map<string, Variable[]>();
  for (const one of variables) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  for (const [group, members] of groups) {
    const options = members.map((one) =>
      make("option", { text: nameOf(one), attributes: { value: one.id } }),
    );
    if (options.length === 1) list.append(options[0]);
    else list.append(make("optgroup", { attributes: { label: group } }, ...options));
  }
  const element = make("label", { class: "field" }, make("span", { text: label }), list);
  return {
    element,
    set(variable) {
      list.value = variable.id;
    },
  };
}
