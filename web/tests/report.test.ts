import { describe, expect, it } from "vitest";
import {
  axisNumber,
  everyNth,
  formatSmall,
  formatValue,
  ticks,
  withInterval,
} from "../src/data/format.ts";
import { parseReport } from "../src/data/parse.ts";
import { dotStyle } from "../src/paint/roles.ts";
import { radiusOf } from "../src/report/map_figure.tsx";
import { flow } from "../src/report/marks.tsx";
import { csvText } from "../src/view/download.ts";

describe("numbers", () => {
  it("are percent where they are shares", () => {
    expect(formatValue(0.4312, true)).toBe("43.1\u00a0%");
    expect(formatValue(-0.00001, true)).toBe("0.0\u00a0%");
    expect(formatValue(null, true)).toBe("–");
    expect(withInterval(0.4312, 0.42, 0.4444, true)).toBe("43.1\u00a0% [42.0–44.4]");
    expect(withInterval(-0.6, -0.7, -0.5, false)).toBe("−0.60 [−0.70 to −0.50]");
    expect(withInterval(0.5, null, null, false)).toBe("0.50");
  });

  it("keep their digits where they are small", () => {
    expect(formatSmall(0.00123)).toBe("0.0012");
    expect(formatSmall(0.0000123)).toBe("1.2e−5");
    expect(formatSmall(-0.0000123)).toBe("−1.2e−5");
    expect(formatSmall(12.345)).toBe("12.3");
  });

  it("are round on axes", () => {
    expect(ticks(0, 0.9, 4)).toEqual([0, 0.25, 0.5, 0.75]);
    expect(ticks(0, 7, 4)).toEqual([0, 2, 4, 6]);
    expect(ticks(3, 3, 4)).toEqual([3]);
    expect(axisNumber(0.3, true)).toBe("30\u00a0%");
    expect(axisNumber(-2.5, false)).toBe("−2.5");
    expect(everyNth(30, 12)).toBe(5);
    expect(everyNth(6, 12)).toBe(1);
  });
});

describe("the map of heads", () => {
  it("draws areas that grow with the size of effects, whatever their sign", () => {
    const [none, quarter, most] = [0, -0.1, 0.4].map((effect) => radiusOf(effect, 0.4));
    expect(quarter - none).toBeCloseTo((most - none) / 2);
    expect(radiusOf(null, 0.4)).toBe(none);
    expect(radiusOf(undefined, 0)).toBe(radiusOf(0.3, 0));
  });
});

describe("dots", () => {
  it("have the color of their role, or a series color for other names", () => {
    const names = ["[CLS]", "broad attention", "previous token", "direct object", "other"];
    const fills = names.map((name) => dotStyle(name, names).fill);
    expect(fills[1]).toBe("var(--role-broad)");
    expect(fills[2]).toBe("var(--role-previous_token)");
    expect(new Set(fills).size).toBe(names.length);
  });

  it("are rings where series colors run out", () => {
    const names = Array.from({ length: 17 }, (_, i) => `relation ${i}`);
    expect(dotStyle(names[15], names).class).toBe("dot");
    expect(dotStyle(names[16], names).class).toBe("ring");
  });
});

describe("CSV", () => {
  it("quotes what would be read as something else", () => {
    const rows = [
      ["a", 'say "b"', "c,d"],
      [1.5, null, "two\nlines"],
    ];
    expect(csvText(rows)).toBe('a,"say ""b""","c,d"\r\n1.5,,"two\nlines"\r\n');
  });
});

describe("layout", () => {
  it("goes on to the next line where the width is used up", () => {
    const sizes = [100, 100, 100].map((width) => ({ width, height: width / 2 }));
    expect(flow(sizes, 220, 10)).toEqual({
      places: [
        { x: 0, y: 0 },
        { x: 110, y: 0 },
        { x: 0, y: 60 },
      ],
      height: 110,
    });
  });
});

describe("a report", () => {
  const whole = {
    format: "headscope-report",
    version: 1,
    subjects: [],
    findings: [],
    sections: [],
    cards: [],
    documents: [],
  };

  it("is taken where it is one", () => {
    expect(parseReport(JSON.stringify(whole)).version).toBe(1);
  });

  it("is refused with a reason where it is not", () => {
    expect(() => parseReport("{")).toThrow("cut off or damaged (it is not JSON)");
    expect(() => parseReport("null")).toThrow("it is not a report");
    expect(() => parseReport(JSON.stringify({ ...whole, version: 7 }))).toThrow(
      "its version is 7, expected 1",
    );
    expect(() => parseReport(JSON.stringify({ ...whole, cards: null }))).toThrow("it has no cards");
  });
});
