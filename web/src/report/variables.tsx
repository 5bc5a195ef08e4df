// Variables with a value for each head: names, values, and a list to choose from.

import type { HeadId, HeadsFigure, Report, VariableEntry } from "../../generated/report.ts";
import { withInterval } from "../data/format.ts";
import { type RoleLook, roleLook } from "../paint/roles.ts";
import type { Tip } from "../view/controls.tsx";

export function nameOf({ group, label }: VariableEntry): string {
  return label ? `${group}: ${label}` : group;
}

/** Row of a tooltip with a head's value; empty if the model has no such values. */
export function valueRow(
  variable: VariableEntry,
  subject: number,
  row: number,
  head: number,
): Tip["rows"] {
  const values = variable.values[subject];
  if (!values) return [];
  const [value, low, high] = [values.value, values.low, values.high].map(
    (table) => table?.[row]?.[head],
  );
  const text = withInterval(value, low, high, variable.share);
  return [[nameOf(variable), (variable.share ? text : `${text} ${variable.units}`).trim()]];
}

/** Figure of all heads, which every report of heads has. */
export function headsFigure(report: Report): HeadsFigure | null {
  const figures = report.sections.flatMap((section) => section.figures);
  return figures.find((figure) => figure.kind === "heads") ?? null;
}

export function roleOf(report: Report, [subject, layer, head]: HeadId): RoleLook {
  const row = report.subjects[subject].layers.indexOf(layer);
  return roleLook(headsFigure(report)?.roles[subject]?.[row]?.[head] || null);
}

interface VariableListProps {
  readonly label: string;
  readonly variables: readonly VariableEntry[];
  /** Chosen variable; null for the first entry. */
  readonly value: VariableEntry | null;
  readonly first?: string | undefined;
  choose(variable: VariableEntry | null): void;
}

export function VariableList({ label, variables, value, first, choose }: VariableListProps) {
  const groups = new Map<string, VariableEntry[]>();
  for (const variable of variables) {
    groups.set(variable.group, [...(groups.get(variable.group) ?? []), variable]);
  }
  return (
    <label class="field">
      <span>{label}</span>
      <select
        aria-label={label}
        value={value?.id ?? ""}
        onChange={({ currentTarget }) =>
          choose(variables.find(({ id }) => id === currentTarget.value) ?? null)
        }
      >
        {first && <option value="">{first}</option>}
        {[...groups].map(([group, members]) => {
          const options = members.map((variable) => (
            <option key={variable.id} value={variable.id}>
              {nameOf(variable)}
            </option>
          ));
          return options.length === 1 ? (
            options
          ) : (
            <optgroup key={group} label={group}>
              {options}
            </optgroup>
          );
        })}
      </select>
    </label>
  );
}
