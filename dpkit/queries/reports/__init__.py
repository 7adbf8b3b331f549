"""Many answers from one budget: what a report asks, how its budget is split, its answers as table, page and files.

=================================================  ============================================================
what does a report ask?                            ``asks``
how much noise does an answer need?                ``demands``: sensitivities and errors, without data
how is the budget split, and what does not fit?    ``split``
what is run, checked and recorded?                 ``plans``
how are the answers read?                          ``report``, and ``page`` for those who are no analysts
=================================================  ============================================================
"""
