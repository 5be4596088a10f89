"""Answers that follow a JSON schema, a regular expression or a grammar, by llguidance.

A constraint's text becomes a grammar (`grammar_text`), which is tried in a process of its own
(`trial`) before it is compiled here and kept (`grammars`); each answer has a `matcher`, which tells
before each token what may come.
"""
