"""How often headscope's statistics are wrong: measured on documents that were really read.

    python -m studies.errors --data FOLDER

`populations` runs both models over real documents and keeps the sums of each document. `rates`
draws samples of documents from them, again and again, makes intervals and tests of each sample
as results and reports do, and counts how often they are wrong. `docs/statistics.md` has the table.
"""
