"""The report: results of one or several models as one offline page that reads like a paper.

`report.report` writes it. What the page shows is first made as plain data (`build`): titles,
sentences, figures as numbers. The front end (`web/src/report`) draws it and adds nothing.
"""
