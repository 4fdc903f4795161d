"""Phrases and names that make a text hard to read, and the files in which they are counted.

`tests/unit/test_phrases.py` allows no phrase in source, tests, benchmarks and documents. Some would
be right in another sentence (`who` about people), but each has a plain replacement. It allows no
empty name in the source: `partition` says more than `each` or `found`. Nor does it allow words that
only this project used, where the field has its own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_WORDS = {
    "what is": r"what(?:ever)? (?:is|are|was|were|it|they|has|have|had|there|no|can|may|must)",
    "what": r"what(?:ever)? (?:the|a|an|this|that|of|comes|came|goes|follows|stands|waits|others?)",
    "who": r"who|whom|whoever",
    "somebody": r"somebody|someone|anybody|anyone|everybody|everyone",
    "nobody": r"nobody|no one",
    "he": r"he|him|his|himself",
    "those that": r"those (?:that|which|who|of|in|there|before|whose|without|with)",
    "that there are": r"that there (?:is|are|was|were)|there (?:is|are) (?:that|whose)",
    "one that": r"ones? (?:that|with|without|which)|none (?:that|of|too)",
    "anew": r"anew",
    "told": r"told|tells?|telling",
    "of before": r"of before|from before|that (?:was|were|is|are) before|as before it",
    "taken for": r"tak(?:e|es|en|ing) (?:it|itself|them|this|that)? ?for (?:it|a|an|the)",
    "goes on": r"(?:goes?|going|went) on|le(?:ads?|d) on|let(?:s|ting)? (?:it|them)? ?go",
    "save for": r"save for|save that|but for",
    "own words": r"learned (?:requests?|fetch)|dialogues?|newcomers?|reigns?|sieves?",
    "turn of the loop": r"turns? of the (?:event )?loop",
    "other idioms": r"com(?:es?|ing) to (?:an|its|their) end|last breath|so it is|by means of",
}
PHRASES = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in _WORDS.items()}
_ANY = re.compile(rf"\b(?:{'|'.join(_WORDS.values())})\b")
_BETWEEN_WORDS = str.maketrans(dict.fromkeys("#_\"'\\", " "))
_COMMENT = re.compile(r"# (.*)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_PROSE = (
    *("src/**/*.py", "src/**/*.txt", "tests/**/*.py", "benchmarks/*.py"),
    *("*.md", "docs/**/*.md"),
)
_QUOTING = ("tests/phrases.py", "tests/unit/test_phrases.py")
"""Files that contain the phrases as examples."""
EMPTY_NAMES = frozenset({"each", "found", "known", "place", "wanted"})
_HAS_EMPTY_NAME = re.compile(rf"\b_*(?:{'|'.join(sorted(EMPTY_NAMES))})\b")
FORMER_WORDS = frozenset(
    {
        *("dialogue", "gate", "hosted", "newcomer", "newcomers", "promises", "reign", "reigns"),
        *("sieve", "turn", "turns"),
    }
)
"""Words of this project that gave way to the field's: see the glossary of ARCHITECTURE.md."""
_MAY_HAVE_FORMER_WORD = re.compile(
    r"dialogue|(?<!re)turn|gate|hosted|newcomer|promises|reign|sieve", re.IGNORECASE
)
_WORD_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def prose_files(project: Path) -> list[Path]:
    """Return all source files, tests, stored help pages and documents of the project."""
    found = {path for pattern in _PROSE for path in project.glob(pattern)}
    return sorted(found - {project / path for path in _QUOTING})


def count_phrases(path: Path) -> Counter[str]:
    """Count each phrase in the prose of a file."""
    if path.suffix == ".py" and not _may_have_any(path.read_text()):
        return Counter()
    text = " ".join(_prose(path).split())
    counts = Counter({name: len(phrase.findall(text)) for name, phrase in PHRASES.items()})
    return +counts


def count_empty_names(path: Path) -> Counter[str]:
    """Count the functions, variables, parameters and attributes of a module with an empty name."""
    text = path.read_text()
    if not _HAS_EMPTY_NAME.search(text):
        return Counter()
    names = (name.strip("_") for node in ast.walk(ast.parse(text)) for name in _names(node))
    return Counter(name for name in names if name in EMPTY_NAMES)


def count_former_words(path: Path) -> Counter[str]:
    """Count the former words in names of classes, functions, variables and attributes."""
    text = path.read_text()
    if not _MAY_HAVE_FORMER_WORD.search(text):
        return Counter()
    names = (name for node in ast.walk(ast.parse(text)) for name in _names(node))
    words = (word.lower() for name in names for word in _WORD_OF_NAME.findall(name))
    return Counter(word for word in words if word in FORMER_WORDS)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.arg():
            yield node.arg
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.Attribute(ctx=ast.Store()):
            yield node.attr


def _may_have_any(text: str) -> bool:
    """Return whether the text of a module, with its code, has a phrase.

    Most have none, so they need not be parsed. In lower case the search takes a third of the time
    that it takes in any case.
    """
    text = text.replace("\\n", " ").replace("\\t", " ").translate(_BETWEEN_WORDS).lower()
    return _ANY.search(" ".join(text.split())) is not None


def _prose(path: Path) -> str:
    text = path.read_text()
    if path.suffix == ".md":
        return _FENCED.sub("", text)
    return "\n".join(_prose_of_source(text)) if path.suffix == ".py" else text


def _prose_of_source(text: str) -> Iterator[str]:
    """Yield comments, strings of several words, and the names of functions."""
    # Not by `tokenize`, which takes most of the time of the check. A `#` within a string yields a
    # part of that string twice, which is harmless where no phrase is allowed at all.
    yield from _COMMENT.findall(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
        elif isinstance(node, _FUNCTIONS):
            yield node.name.removeprefix("test_").replace("_", " ")
