import { expect, test } from "vitest";
import { probability } from "../src/data/format.ts";
import { scaleOf } from "../src/data/head_summary.ts";
import { drawBars, listOf, rowsOf } from "../src/layout/heads_layout.ts";
import { heatOf } from "../src/layout/matrix_layout.ts";
import { headHue } from "../src/paint/roles.ts";
import { themeOf } from "../src/paint/theme.ts";
import { scoreOf } from "../src/state/exercise.ts";
import { MAX_HEADS } from "../src/state/selection.ts";
import { Session } from "../src/state/session.ts";
import { storyOf } from "../src/state/tour.ts";
import { solve } from "../src/view/exercise_view.tsx";
import { headDifferences } from "../src/view/head_values.ts";
import { sampled, shortModel } from "../src/view/predictions.tsx";
import { titleParts } from "../src/view/selected_head.ts";
import { golden, goldenSession, goldenTraces } from "./golden.ts";

const TOP = [0.6, 0.2, 0.1, 0.05].map((probability, i) => ({ text: `w${i}`, probability }));

test("a limit and a temperature give the probabilities of sampling", () => {
  expect(sampled(TOP, 1, 0)).toEqual([0.6, 0.2, 0.1, 0.05]);
  const three = sampled(TOP, 1, 3);
  expect(three[0]).toBeCloseTo(0.6 / 0.9, 6);
  expect(three[3]).toBeNull();
  // A temperature divides logits: p^(1/T) over the sum of the kept.
  const logits = TOP.map(({ probability }) => Math.log(probability) / 0.5);
  const sum = logits.slice(0, 2).reduce((total, logit) => total + Math.exp(logit), 0);
  expect(sampled(TOP, 0.5, 2)[1]).toBeCloseTo(Math.exp(logits[1]) / sum, 6);
});

test("the sign of an effect counts in the score", () => {
  expect([-3, -1.6, -0.7, -0.1, 0.7].map((effect) => scoreOf(effect, -3))).toEqual([3, 2, 1, 0, 0]);
});

test("faint rows are scaled, others are not", () => {
  expect(scaleOf([0.95, 0.025, 0.02])).toBe(1);
  expect(scaleOf([0.01, 0.025, 0.02])).toBe(20);
  expect(scaleOf([0, 0, 0])).toBe(1);
});

test("a pixel of several cells shows the largest of them", () => {
  const theme = themeOf("light");
  const weights = new Float32Array(25).fill(0.01);
  weights[1 * 5 + 1] = 0.2;
  weights[4 * 5 + 4] = 0.1;
  const heat = heatOf({ rows: 5, columns: 5, weights }, theme, [0, 0, 0], { full: 0.2, pool: 2 });
  expect([heat.rows, heat.columns, heat.pool]).toEqual([3, 3, 2]);
  expect([...heat.pixels.slice(0, 3)]).toEqual([0, 0, 0]);
  const red = (i: number) => heat.pixels[4 * i];
  expect(red(8)).toBeGreaterThan(0);
  expect(red(8)).toBeLessThan(red(4));
});

test("bars stand in the order of the text, sinks in gray", () => {
  const canvas = { width: 12, height: 10, ink: new Float32Array(120) };
  drawBars([0.5, 0, 1], (key) => key === 0, canvas);
  const column = (x: number) => Array.from({ length: 10 }, (_, y) => canvas.ink[y * 12 + x]);
  expect(Math.max(...column(0))).toBeCloseTo(0.4);
  expect(Math.max(...column(5))).toBe(0);
  expect(column(8).filter((ink) => ink === 1)).toHaveLength(9);
  expect(column(0).filter((ink) => ink > 0)).toHaveLength(Math.round(9.4 * 0.5 ** 0.7));
});

test("sorted heads have tiles with room for a name", () => {
  const grid = listOf({ width: 400 }, 270);
  expect(grid).toMatchObject({ across: 4, label: "list", cellHeight: 44 });
  expect(grid.width).toBeLessThanOrEqual(400);
  expect(grid.cellWidth).toBeGreaterThanOrEqual(88);
});

test("heads of two inputs are ranked by half the sum of differences", async () => {
  const session = await goldenSession("example=1&word=1");
  const [a, b] = session.sides.value;
  await Promise.all([a, b].flatMap(({ block }) => block.planes.map((lazy) => lazy.whole())));
  const found = headDifferences(session)!;
  for (const { layerIndex, head, value } of found.all) {
    let sum = 0;
    for (let key = 0; key < a.block.keyTokens.texts.length; key++) {
      const [one, other] = [a, b].map(
        ({ block }) => block.planes[layerIndex].value!.row(head, 1)[key],
      );
      sum += Math.abs(one - other);
    }
    expect(value).toBeCloseTo(sum / 2, 6);
  }
  const values = found.all.map(({ value }) => value);
  expect(values).toEqual([...values].sort((one, other) => other - one));
});

test("rows of a word come from thumbnails that are not pooled", async () => {
  const session = await goldenSession();
  const { block } = session.sides.value[0];
  await block.planes[0].whole();
  const row = rowsOf(block, 2)!(0, 0)!;
  const exact = block.planes[0].value!;
  for (let key = 0; key < row.length; key++) {
    expect(row[key]).toBeCloseTo(exact.row(0, 2)[key], 2);
  }
  expect(rowsOf(block, null)).toBeNull();
});

test("a step of a story points at what its selection is about", () => {
  const targets = storyOf([
    { caption: "", selection: "color=role" },
    { caption: "", selection: "head=L1H0&word=2&color=spread" },
    { caption: "", selection: "head=L1H0&off=L1H0" },
    { caption: "", selection: "word=1" },
    { caption: "", selection: "answers=1" },
  ]).map(({ target }) => target);
  expect(targets).toEqual(["grid", "head", "answer", "sentence", "answer"]);
});

test("an exercise opens without giving its answer away, and scores", async () => {
  const session = await goldenSession("ex=1");
  expect(golden.header.exercise).toBeUndefined();
  expect(session.exercise.questions.length).toBeGreaterThan(0);
  expect(session.exercise.isHidden.value).toBe(true);
  expect(session.selection.value).toMatchObject({ layer: 0, head: 0, exercise: 1, edits: [] });
  session.choose({ layer: 0, head: 1 });
  expect(session.exercise.guess.value).toEqual({ layer: 0, head: 1 });
  session.exercise.reveal(2);
  expect(session.exercise.isHidden.value).toBe(false);
  expect(session.exercise.scores.value.get(1)).toBe(2);
  session.exercise.open(0);
  expect(session.exercise.asked.value).toBeNull();
});

test("an answer that was shown without a guess counts as a question with score 0", async () => {
  const session = await goldenSession("ex=1");
  const solution = solve(session, session.lead.value, null)!;
  session.exercise.reveal(solution.score);
  expect([...session.exercise.scores.value]).toEqual([[1, 0]]);
});

test("a right guess is not listed again among the other answers", async () => {
  const traces = await goldenTraces();
  const said = (heads: string[]) => {
    const exercise = [{ question: "", selection: "", answer: "heads" as const, heads }];
    const session = new Session({ ...golden.header, exercise }, traces, null, "ex=1");
    return solve(session, session.lead.value, { layer: 0, head: 1 })!.said;
  };
  expect(said(["L0H0", "L0H1", "L1H0"])).toBe("L0 H1 is right. So are L0 H0, L1 H0.");
  expect(said(["L0H0", "L0H1"])).toBe("L0 H1 is right. So is L0 H0.");
  expect(said(["L0H1"])).toBe("L0 H1 is right.");
});

test("the title of a comparison names the text of each link", async () => {
  const session = await goldenSession("example=1&word=1&head=L0H0");
  const letters = titleParts(session).links.map(({ letter }) => letter);
  expect(letters).toEqual(["A", "B"]);
  const alone = await goldenSession("example=0&word=1&head=L0H0");
  expect(titleParts(alone).links.every(({ letter }) => letter === "")).toBe(true);
});

test("hues of heads are distinct, names of models short, probabilities readable", () => {
  for (const scheme of ["light", "dark"] as const) {
    const hues = Array.from({ length: MAX_HEADS }, (_, i) => headHue(i, scheme).join());
    expect(new Set(hues).size).toBe(MAX_HEADS);
  }
  expect(shortModel("HuggingFaceTB/SmolLM2-135M-Instruct")).toBe("SmolLM2");
  expect(shortModel("gpt2")).toBe("gpt2");
  expect([0.923, 0.0216, 0.999, 0, 0.00004].map(probability)).toEqual([
    "92 %",
    "2.2 %",
    "99.9 %",
    "0 %",
    "< 0.01 %",
  ]);
});
