"""Precision and recall of the roles that single texts show, against direct tests.

    python -m studies.roles            # measure, write docs/study/roles.csv and the tables
    python -m studies.roles --page     # write the tables of docs/heads.md from the file

A role is named on one text (`Trace.roles`). `headscope.detect_heads` tests the same head on random
tokens repeated once; duplicate-token heads also on twelve random words repeated in another order,
and the higher score counts. A named head is an *accident* if it fails there: its score is below
0.25, half of what a role needs. *Found* counts the heads with a score of at least 0.5 that are
named, of those in texts with enough queries. Random weights are the control, as sharp as trained
ones.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import headscope as hs
from headscope.heads.roles import NAMES, role_shares
from headscope.model.load import randomized
from headscope.model.model import Model
from headscope.results.trace import Trace

DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "study" / "roles.csv"
PAGE = DOCS / "heads.md"
MARK = re.compile(r"(<!-- roles: measured -->\n\n).*?(\n\n<!-- end of roles -->)", re.DOTALL)
MODELS = {"smollm2": "SmolLM2", "minilm": "MiniLM"}
TESTS = {
    "previous_token": "previous_token",
    "duplicate_token": "duplicate_token",
    "induction": "induction",
    "first_token": "sink_rate",
}
"""Roles that a direct test can judge, with its score."""
FAILS, PASSES = 0.25, 0.5
POWERS = (1, 16, 256)
"""Factors on the scores of random weights."""
Row = dict[str, str]

TEXTS: dict[str, tuple[str, ...]] = {
    "prose": (
        "The ferry left the harbor an hour late, because the wind had turned and the captain did "
        "not trust the sandbank. Most passengers stayed on deck. A girl counted the gulls behind "
        "the ship, lost count at forty, and began again. When the island finally rose out of the "
        "haze, nobody cheered; they had been promised it too often.",
        "My grandmother kept bees in wooden boxes that she painted herself. Each spring she opened "
        "the boxes slowly, so that the bees would not take fright, and looked for the queen. She "
        "said that a good queen could be heard before she was seen. I never heard one, but I "
        "learned to stand still, which was perhaps what she meant to teach.",
        "Concrete hardens by a reaction with water, not by drying. A slab that dries too soon "
        "stays weak, and fine cracks run across its face. Builders therefore cover it with wet "
        "cloth or plastic for a week. In hot weather they pour at night, when the water leaves "
        "the surface slowly and the mass below has time to set.",
        "The museum opened in the old railway station in 1987. Its first director had no money "
        "for walls, so the pictures hung on frames between the platforms. Visitors liked it. When "
        "the city offered to build proper rooms ten years later, they wrote letters against the "
        "plan, and the frames are still there.",
        "A river carries more than water. After heavy rain it moves sand and gravel along its bed, "
        "cutting into the outer bank of each bend and dropping its load on the inner side. Over "
        "centuries the bends grow, until the river breaks through a narrow neck and leaves a "
        "curved lake behind. Maps of such valleys are out of date when they are printed.",
        "She had expected the exam to be hard, and it was, but not in the way she had feared. The "
        "questions were short. Each asked for one reason, and each reason seemed too simple to be "
        "right. She wrote them down, waited for doubt, and found that there was half an hour left. "
        "Outside, the others were already arguing about the second page.",
        "Salt was once worth a war. Towns that lay on the roads from the mines grew rich by taxing "
        "every cart, and the richest hired soldiers to keep the carts from taking another road. "
        "When a duke built a bridge downstream, the town upstream burned it. The duke built it "
        "again in stone, and that bridge became a city.",
        "Night trains are slow on purpose. A fast train would arrive at three in the morning, when "
        "no one wants to arrive anywhere, so the timetable lets it wait in quiet stations. Whoever "
        "lies awake hears the doors, a whistle far away, two voices on the platform. Then nothing "
        "for a long time, and the carriage begins to move without a sound.",
    ),
    "lists": (
        "We bought apples, pears, plums, grapes, figs, lemons, limes, oranges, cherries, peaches, "
        "melons, bananas, dates, kiwis, mangoes, olives, onions, leeks, carrots, beans, peas, "
        "lentils, rice, oats, barley, flour, sugar, salt, pepper, oil, vinegar, butter and bread.",
        "Monday: soup. Tuesday: rice. Wednesday: pasta. Thursday: fish. Friday: potatoes. "
        "Saturday: pizza. Sunday: roast. Monday: salad. Tuesday: beans. Wednesday: eggs. "
        "Thursday: curry. Friday: noodles. Saturday: stew. Sunday: pie.",
        "1. Wash the beets. 2. Peel the carrots. 3. Chop the onions. 4. Heat the oil. 5. Fry the "
        "onions. 6. Add the beets. 7. Add the carrots. 8. Pour the stock. 9. Season the soup. "
        "10. Simmer for an hour. 11. Stir the cream. 12. Serve the bowls. 13. Wash the pot.",
        "Paris is in France. Rome is in Italy. Madrid is in Spain. Lisbon is in Portugal. Vienna "
        "is in Austria. Oslo is in Norway. Athens is in Greece. Warsaw is in Poland. Prague is in "
        "Czechia. Dublin is in Ireland. Bern is in Switzerland. Helsinki is in Finland.",
        "red, green, blue, yellow, black, white, orange, purple, brown, gray, pink, silver, gold, "
        "bronze, copper, violet, indigo, beige, ivory, olive, navy, teal, maroon, coral, salmon, "
        "lime, mint, rust, sand, stone, smoke, snow",
        "- tent\n- stove\n- matches\n- rope\n- knife\n- map\n- lamp\n- soap\n- towel\n- socks\n"
        "- boots\n- jacket\n- gloves\n- tape\n- needle\n- thread\n- cup\n- spoon\n- pot\n- whistle",
        "Anna 31 Berlin, Boris 28 Sofia, Clara 45 Lima, David 19 Oslo, Elena 52 Rome, Felix 37 "
        "Graz, Greta 24 Bonn, Henry 61 York, Irene 33 Nice, Jonas 40 Kiel, Karin 29 Bern, Louis "
        "55 Metz, Maria 47 Cork",
        "Item: hammer, price: 12. Item: saw, price: 18. Item: drill, price: 64. Item: chisel, "
        "price: 9. Item: clamp, price: 15. Item: level, price: 22. Item: file, price: 7. Item: "
        "plane, price: 41. Item: vise, price: 58.",
    ),
    "more lists": (
        "We bought apples, pears, plums, grapes, figs, dates, nuts, bread, milk and cheese.",
        "red, blue, green, red, yellow, blue, white, red, black, green, pink, blue, gray",
        "- eggs\n- flour\n- sugar\n- butter\n- salt\n- yeast\n- eggs\n- milk\n- oil",
        "Monday: rain. Tuesday: sun. Wednesday: rain. Thursday: wind. Friday: sun. Saturday: snow.",
        "1. wash 2. cut 3. fry 4. stir 5. wash 6. serve 7. eat 8. wash 9. dry",
        "John 12, Mary 14, Peter 9, Susan 17, Paul 3, Anna 14, Tom 12, Emma 8",
        "cat; dog; cow; hen; pig; cat; ewe; dog; ram; fox; cow; owl; bat",
        "Paris is in France; Rome is in Italy; Madrid is in Spain; Oslo is in Norway; Nice "
        "is in France.",
        "Milk: 2 euros. Bread: 3 euros. Eggs: 4 euros. Butter: 3 euros. Cheese: 6 euros. "
        "Apples: 2 euros.",
        "Name: Ann. Age: 31. City: Bonn. Name: Ben. Age: 27. City: Kiel. Name: Cleo. Age: "
        "44. City: Ulm.",
        "Team A beat Team B. Team C beat Team D. Team A beat Team C. Team B beat Team D.",
        "one potato, two potato, three potato, four, five potato, six potato, seven potato, more",
        "a shirt, a coat, a hat, two socks, a shirt, two gloves, a scarf, a coat and two boots",
        "Room 1: free. Room 2: taken. Room 3: free. Room 4: free. Room 5: taken. Room 6: closed.",
        "x = 1, y = 2, z = 3, x = 4, y = 5, z = 6, x = 7, y = 8, z = 9",
        "salt and pepper, bread and butter, fish and chips, salt and vinegar, bread and jam, "
        "fish and rice",
        "Gold: Kenya. Silver: Cuba. Bronze: Japan. Gold: Cuba. Silver: Japan. Bronze: Chile. "
        "Gold: Japan.",
        "8:00 bus, 8:20 train, 8:45 bus, 9:10 tram, 9:30 train, 9:50 bus, 10:15 tram, 10:40 train",
        "Add salt. Add water. Stir well. Add flour. Stir well. Add water. Knead well. Add "
        "salt. Bake.",
        "oak, ash, elm, oak, fir, yew, ash, pine, elm, oak, beech, fir, ash, larch, yew",
        "King Louis, Queen Anne, King Charles, Queen Mary, King George, Queen Anne, King "
        "Louis, Prince Albert",
        "Q: Who? A: Tom. Q: When? A: Now. Q: Where? A: Here. Q: Who? A: Ann. Q: When? A: Later.",
        "* read the mail\n* water the plants\n* call the bank\n* read the paper\n* water the "
        "lawn\n* call the doctor",
        "Lima, Peru; Quito, Ecuador; Bogota, Colombia; Cusco, Peru; Cali, Colombia; Cuenca, "
        "Ecuador; Lima, Peru",
        "left, right, left, left, right, up, down, left, up, right, down, down, left, right, up",
        "2019: 14 wins, 6 losses. 2020: 9 wins, 11 losses. 2021: 14 wins, 8 losses. 2022: 11 "
        "wins, 6 losses.",
    ),
    "lists, held out": (
        "Starter: soup. Main: fish. Dessert: cake. Starter: salad. Main: steak. Dessert: "
        "fruit. Starter: soup. Main: pasta. Dessert: cake.",
        "Berlin 3.6, Hamburg 1.8, Munich 1.5, Cologne 1.1, Berlin 3.7, Hamburg 1.9, Munich "
        "1.6, Cologne 1.0",
        "ants, bees, ants, wasps, moths, bees, flies, ants, gnats, wasps, bees, ticks, moths, ants",
        "Page 1: title. Page 2: contents. Page 3: preface. Page 4: map. Page 5: title. Page "
        "6: index.",
        "the red car, the blue van, the red bus, the green van, the blue car, the green bus, "
        "the red van",
        "- call Mia at noon\n- mail Leo at one\n- call Leo at two\n- mail Mia at three\n- "
        "call Ida at four",
        "Tom likes tea, Ann likes milk, Ben likes tea, Sue likes juice, Tom likes milk, Ann "
        "likes water",
        "C major, G major, D minor, A minor, C minor, F major, G minor, C major, D major, A minor",
        "Mercury 0, Venus 0, Earth 1, Mars 2, Jupiter 95, Saturn 146, Uranus 28, Neptune 14, "
        "Earth 1, Mars 2",
        "buy milk; sell milk; buy corn; sell corn; buy wool; sell wool; buy salt; sell salt; "
        "buy milk",
    ),
    "new lists, held out": (
        "Tea: hot. Milk: cold. Soup: hot. Juice: cold. Broth: hot. Water: cold. Cocoa: hot. "
        "Beer: cold.",
        "rose, tulip, lily, rose, daisy, lily, poppy, rose, aster, tulip, iris, lily, rose",
        "- feed the cat\n- walk the dog\n- feed the birds\n- brush the dog\n- feed the "
        "fish\n- brush the cat",
        "Anna: red team. Ben: blue team. Carl: red team. Dora: green team. Emil: blue team. "
        "Fay: red team.",
        "Chapter 1: the farm. Chapter 2: the road. Chapter 3: the town. Chapter 4: the farm. "
        "Chapter 5: the sea.",
        "two eggs, one onion, two carrots, three cloves, one lemon, two limes, three figs, one egg",
        "Oslo to Rome, Rome to Paris, Paris to Oslo, Oslo to Bern, Bern to Rome, Rome to Oslo",
        "copper, zinc, iron, copper, tin, lead, zinc, gold, iron, nickel, copper, silver, "
        "tin, zinc",
        "Width: 20 cm. Height: 30 cm. Depth: 10 cm. Width: 25 cm. Height: 35 cm. Depth: 12 cm.",
        "violin, cello, flute, violin, oboe, horn, cello, harp, flute, violin, drum, oboe, cello",
        "Open the door. Close the window. Open the box. Lock the door. Close the box. Lock "
        "the window.",
        "March: rain 40, sun 12. April: rain 35, sun 18. May: rain 20, sun 25. June: rain "
        "15, sun 30.",
        "Kim won, Lee lost, Max won, Pia won, Lee won, Kim lost, Max lost, Pia lost, Lee lost",
        "small shirt, large shirt, small coat, large hat, small hat, large coat, small "
        "scarf, large scarf",
        "apples 3, pears 5, plums 2, apples 4, figs 7, pears 1, plums 6, apples 2, figs 3",
        "Mars is a planet; Ceres is a dwarf; Titan is a moon; Venus is a planet; Europa is a "
        "moon; Eris is a dwarf.",
        "go left, go straight, turn right, go left, turn left, go straight, turn right, go right",
        "Bus 4: late. Bus 7: on time. Tram 4: late. Tram 9: on time. Bus 9: late. Tram 7: late.",
        "To: Ann. From: Bob. To: Cid. From: Ann. To: Bob. From: Cid. To: Dan. From: Ann.",
        "piano and violin, flute and drum, piano and flute, drum and violin, harp and piano, "
        "violin and harp",
    ),
    "code": (
        "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
        "    return total / len(values)\n\ndef variance(values):\n    center = mean(values)\n"
        "    total = 0\n    for value in values:\n        total += (value - center) ** 2\n"
        "    return total / len(values)\n",
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n"
        "    def push(self, item):\n        self.items.append(item)\n\n    def pop(self):\n"
        "        if not self.items:\n"
        "            raise IndexError('empty')\n        return self.items.pop()\n",
        "function debounce(call, wait) {\n  let timer = null;\n  return (...args) => {\n"
        "    if (timer) clearTimeout(timer);\n    timer = setTimeout(() => {\n      timer = null;\n"
        "      call(...args);\n    }, wait);\n  };\n}\n",
        "SELECT city.name, COUNT(person.id) AS people\nFROM city\nJOIN person ON person.city_id = "
        "city.id\nWHERE person.age > 18\nGROUP BY city.name\nHAVING COUNT(person.id) > 100\nORDER "
        "BY people DESC;\n",
        'for file in data/*.csv; do\n  name=$(basename "$file" .csv)\n  if [ -s "$file" ]; then'
        '\n    sort "$file" | uniq > "clean/$name.csv"\n    echo "$name done"\n  else\n'
        '    echo "$name empty"\n  fi\ndone\n',
        "struct Point { double x; double y; };\n\ndouble distance(struct Point a, struct Point b) "
        "{\n  double dx = a.x - b.x;\n  double dy = a.y - b.y;\n  return sqrt(dx * dx + dy * dy);\n"
        "}\n",
        '{"name": "demo", "version": "1.2.0", "scripts": {"build": "tsc", "test": "jest", "lint": '
        '"eslint src"}, "dependencies": {"react": "18.2.0", "redux": "4.2.1"}, "private": true}',
        "import os\nimport sys\n\n\ndef main(path):\n    if not os.path.exists(path):\n"
        "        print('missing', path)\n        return 1\n    size = os.path.getsize(path)\n"
        "    print('size', size)\n    return 0\n\n\nif __name__ == '__main__':\n"
        "    sys.exit(main(sys.argv[1]))\n",
    ),
    "dialogue": (
        "“Did you lock the door?”\n“I thought you locked the door.”\n“I was carrying the boxes.”\n"
        "“Then nobody locked the door.”\n“We should go back.”\n“It is an hour's drive.”\n“And the "
        "window is open too.”\n“Then we should go back now.”",
        "Teacher: What is the capital of Peru?\nPaul: Is it Lima?\nTeacher: It is Lima. And of "
        "Chile?\nPaul: Is it Santiago?\nTeacher: It is Santiago. And of Bolivia?\nPaul: I am not "
        "sure.\nTeacher: Nobody is sure. There are two.",
        "A: Good morning, I would like a ticket to Leeds.\nB: Single or return?\nA: Return, "
        "please. When does it leave?\nB: At ten past nine, from platform four.\nA: And is there a "
        "later train?\nB: At ten past ten, from platform two.\nA: Then I take the later train.",
        "“You said the cake would be ready.”\n“I said it might be ready.”\n“The guests are here.”\n"
        "“Then give the guests some tea.”\n“They came for cake.”\n“They came for you,” she said, "
        "“and the cake needs twenty minutes.”",
        "Doctor: Where does it hurt?\nPatient: Here, below the knee.\nDoctor: Since when?\n"
        "Patient: Since Sunday. I fell on the stairs.\nDoctor: Can you bend the knee?\nPatient: I "
        "can bend it, but I cannot stand on it.\nDoctor: Then we will take a picture of it.",
        "“Who moved my chair?”\n“Which chair?”\n“The green chair by the window.”\n“That was your "
        "chair?”\n“It has been my chair for nine years.”\n“I moved it to the attic.”\n“Then who "
        "will move it back?”\n“Whoever wants to sit by the window.”",
        "Mia: Are we still meeting at six?\nTom: Yes, at the cinema.\nMia: The old cinema or the "
        "new one?\nTom: The old one, next to the bakery.\nMia: The bakery closed last year.\nTom: "
        "Next to where the bakery was, then.\nMia: See you at six.",
        "“Sir, this seat is taken.”\n“By whom?”\n“By my brother.”\n“And where is your brother?”\n"
        "“He is looking for a seat.”\n“Then tell your brother that I found him one.”\n“Where?”\n"
        "“Beside me, if you would move your bag.”",
    ),
}


def sharpened(trace: Trace, power: float) -> Trace:
    """Return the trace of a model whose scores are `power` times as large."""
    weights = trace.attention.values.astype(np.float64)
    weights = (weights / weights.max(-1, keepdims=True)) ** power
    weights /= weights.sum(-1, keepdims=True)
    data = trace.main.data.assign(attention=(trace.attention.dims, weights))
    return replace(trace, blocks={"self": replace(trace.main, data=data)})


def direct_scores(model: Model) -> dict[str, np.ndarray]:
    """Return the score of each role with a direct test, `layer head`."""
    found = hs.detect_heads(model)
    on_words = hs.detect_heads(model, words=True, length=12, sequences=64)
    scores = {role: found[name].transpose("layer", "head").values for role, name in TESTS.items()}
    of_words = on_words["duplicate_token"].transpose("layer", "head").values
    scores["duplicate_token"] = np.maximum(scores["duplicate_token"], of_words)
    return scores


def rows_of(name: str) -> Iterator[Row]:
    """Yield a row for each kind of text and role, of a model and of its control."""
    model = hs.load(name)
    scores = direct_scores(model)
    named: dict[str, list[Trace]] = {
        kind: [model.trace(text, vectors=False) for text in texts] for kind, texts in TEXTS.items()
    }
    control = randomized(hs.load(name), seed=0)
    for kind, traces in named.items():
        blurred = [control.trace(text, vectors=False) for text in TEXTS[kind]]
        by_chance, n_chance = Counter[str](), 0
        for trace in (sharpened(trace, power) for trace in blurred for power in POWERS):
            roles = trace.roles()["role"].values
            by_chance.update(roles.ravel().tolist())
            n_chance += roles.size
        for role in NAMES:
            counts = Counter[str]()
            for trace in traces:
                counts.update(_counted(trace, role, scores))
            yield {
                "model": name,
                "kind": kind,
                "role": role,
                "texts": str(len(traces)),
                **{key: str(counts[key]) for key in ("named", "accidents", "passing", "found")},
                "tested": "yes" if role in TESTS else "no",
                "random_named": str(by_chance[role]),
                "random_heads": str(n_chance),
            }


def _counted(trace: Trace, role: str, scores: dict[str, np.ndarray]) -> dict[str, int]:
    is_named = trace.roles()["role"].values == role
    counts = {"named": int(is_named.sum())}
    if role not in TESTS:
        return counts
    score = scores[role]
    shares = role_shares(trace.main)
    could = shares.queries[NAMES.index(role)] >= 3  # the other texts cannot show the role
    passing = (score >= PASSES) & could
    return counts | {
        "accidents": int((is_named & (score < FAILS)).sum()),
        "passing": int(passing.sum()),
        "found": int((passing & is_named).sum()),
    }


def main() -> None:
    """Measure, unless only the page is requested, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the tables alone")
    if not parser.parse_args().page:
        torch.set_num_threads(1)
        rows = [row for name in MODELS for row in rows_of(name)]
        with FILE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def read() -> list[Row]:
    """Return the rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(text: str) -> str:
    """Return the page with its table as the file has it."""
    table = "\n".join(lines(read()))
    return MARK.sub(lambda mark: f"{mark[1]}{table}{mark[2]}", text)


def lines(rows: list[Row]) -> Iterator[str]:
    """Yield the table: accidents of the named heads, and passing heads that are named."""
    yield f"| role | model | {' | '.join(TEXTS)} | random weights |"
    yield "|---" * (3 + len(TEXTS)) + "|"
    for role in NAMES:
        for model, title in MODELS.items():
            chosen = [row for row in rows if (row["role"], row["model"]) == (role, model)]
            if any(int(row["named"]) + int(row["passing"]) for row in chosen):
                chance = sum(int(row["random_named"]) for row in chosen)
                of = sum(int(row["random_heads"]) for row in chosen)
                cells = [*(_cell(row) for row in chosen), f"{chance / of:.1%}".replace("%", " %")]
                yield f"| `{role}` | {title} | {' | '.join(cells)} |"


def _cell(row: Row) -> str:
    if row["tested"] == "no":
        return row["named"]
    return f"{row['accidents']}/{row['named']} · {row['found']}/{row['passing']}"


if __name__ == "__main__":
    main()
