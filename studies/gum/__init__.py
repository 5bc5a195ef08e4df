"""Vig & Belinkov (2019) and Clark et al. (2019) again, on two models and the genres of GUM.

    python -m studies.gum --data FOLDER        # measure, then write docs/study.md

`corpora` draws the text, `measure` runs the models (resumed where it was stopped),
`findings` turns results into judgements, `figures` draws, `page` writes.
"""
