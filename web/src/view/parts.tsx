// Small parts that several views share.

import { inkOn, type RoleLook, roleColor } from "../paint/roles.ts";
import { useSession } from "./context.ts";

/** The names of classes that hold, in one attribute. */
export function classes(...names: readonly (string | false | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

interface SwatchProps {
  readonly look: RoleLook;
  /** Whether the sign is kept from screen readers. */
  readonly isHidden?: boolean;
}

/** The sign of a role on its color; hollow for heads that no rule names. */
export function Swatch({ look, isHidden }: SwatchProps) {
  const { scheme } = useSession().theme.value;
  const isHollow = look.id === "unnamed";
  const style = isHollow ? {} : { background: look[scheme], color: inkOn(roleColor(look, scheme)) };
  return (
    <span class={classes("sw", isHollow && "hollow")} style={style} aria-hidden={isHidden}>
      {look.sign}
    </span>
  );
}

interface SegmentsProps<T> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, text: string, title?: string])[];
  choose(value: T): void;
}

/** A row of buttons of which one is pressed. */
export function Segments<T>({ label, value, options, choose }: SegmentsProps<T>) {
  return (
    <span class="seg" role="group" aria-label={label}>
      {options.map(([option, text, title]) => (
        <button
          key={text}
          type="button"
          aria-pressed={option === value}
          title={title}
          onClick={() => choose(option)}
        >
          {text}
        </button>
      ))}
    </span>
  );
}
